"""A virtual environment with nothing but the wheel in it, made without asking any index.

What the wheel depends on is lent by the environment that runs the tests, but for its Quorate: a
folder of links, put on the path of the new one. pip takes it as installed, and checks it.
"""

import os
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from quorate.spark.java_home import java_home
from tests.support.guide import ROOT

OWN_MODULES = ("quorate", "quorate_proto", "pyspark_quorate")


class ProgramFailed(AssertionError):
    """A program of the environment ended with an error; the message is what it said last."""


@dataclass(frozen=True)
class InstalledWheel:
    """``pip install quorate[spark]`` in a fresh place."""

    folder: Path
    wheel: Path

    @property
    def python(self) -> Path:
        return self.folder / "venv" / "bin" / "python"

    @property
    def spark_home(self) -> Path:
        return self.folder / "lent" / "pyspark"

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a user who has heard of no checkout: nothing leads to one."""
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        home = java_home(kept, self.folder)
        return {
            **kept,
            **({"JAVA_HOME": home} if home else {}),
            "SPARK_HOME": str(self.spark_home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": str(self.python),
            "PYSPARK_DRIVER_PYTHON": str(self.python),
        }

    def run(self, *arguments: str | Path, more: Mapping[str, str] | None = None) -> str:
        """Run a program of the environment, and return what it prints.

        Raises:
            ProgramFailed: with what it said last.
        """
        done = subprocess.run(
            [self.python, *arguments],
            env={**self.environment, **(more or {})},
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise ProgramFailed(f"{arguments}: {done.stderr[-4000:]}{done.stdout[-1000:]}")
        return done.stdout


def build_wheel(folder: Path, source: Path = ROOT) -> Path:
    """The wheel of this checkout, or of the files of another one in ``source``."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder],
        cwd=source,
        check=True,
        capture_output=True,
    )
    (wheel,) = folder.glob("*.whl")
    return wheel


def install_wheel(folder: Path, source: Path = ROOT) -> InstalledWheel:
    """Build the wheel and install it with pip, in ``folder``."""
    installed = InstalledWheel(folder, build_wheel(folder, source))
    _make_environment(installed)
    installed.run(
        "-m", "pip", "install", "--no-index", f"quorate[spark] @ file://{installed.wheel}"
    )
    return installed


def unpack_wheel(folder: Path, source: Path = ROOT) -> InstalledWheel:
    """Install as ``install_wheel`` does but without pip, which takes seconds: a wheel of Python
    alone is its modules, and nobody looks whether what it depends on is there."""
    installed = InstalledWheel(folder, build_wheel(folder, source))
    site_packages = _make_environment(installed, "--without-pip")
    with zipfile.ZipFile(installed.wheel) as wheel:
        wheel.extractall(site_packages)
    return installed


def _make_environment(installed: InstalledWheel, *options: str) -> Path:
    """Make the virtual environment, and return its folder of libraries."""
    folder = installed.folder
    subprocess.run([sys.executable, "-m", "venv", *options, folder / "venv"], check=True)
    _lend_libraries(folder / "lent")
    (site_packages,) = (folder / "venv" / "lib").glob("python*/site-packages")
    (site_packages / "lent.pth").write_text(f"{folder / 'lent'}\n")
    return site_packages


def _lend_libraries(folder: Path) -> None:
    folder.mkdir()
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not _is_own(entry.name) and entry.suffix != ".pth":
            (folder / entry.name).symlink_to(entry)


def _is_own(name: str) -> bool:
    stem = name.partition(".")[0].partition("-")[0]
    return stem in OWN_MODULES or stem.startswith(("_editable", "__editable__", "pyspark_quorate"))
