"""Kafka's compiled tests and the programs that run them: fetched and compiled once.

Maven fetches the tests and what they need, and a program of ours is compiled against that, into a
folder of the user's cache. Changed sources have another folder.
"""

import re
import shutil
import subprocess
import tempfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from zipfile import ZipFile

from tests.support.kafka_jars import cache_folder


class NotBuilt(Exception):
    """The tests cannot be run here. The message says what is missing."""


@dataclass(frozen=True, slots=True)
class JavaProgram:
    """A program that runs compiled tests. ``name`` is that of its folder in the cache; ``sources``
    has its ``pom.xml``, which names the tests and what they need."""

    name: str
    sources: Path

    def class_path(self, *, may_fetch: bool = True) -> str:
        """Return the class path of the tests and of the program, whose own classes come first.

        Raises:
            NotBuilt: there is no Java, or nothing was fetched before and it may not be now.
        """
        _require("java")
        built = cache_folder() / f"{self.name}-{self._checksum():08x}"
        if not _is_whole(built):
            if not may_fetch:
                raise NotBuilt(f"{self.name} is not fetched yet: python -m tests.clients.suites")
            _build(built, self.sources)
        return _read(built)

    def _checksum(self) -> int:
        files = sorted(path for path in self.sources.rglob("*") if path.is_file())
        return zlib.crc32(b"".join(path.read_bytes() for path in files))


_JAVA: Final = Path(__file__).parent
CLUSTER_TESTS: Final = JavaProgram("kafka-java-suite", _JAVA / "java")
"""Runs tests that are given a running cluster."""
KIT_TESTS: Final = JavaProgram("kafka-kit-suites", _JAVA / "java_kit")
"""Runs tests that start clusters themselves, by Kafka's test kit."""


def classes_of(path: str, jar: str, package: str = "") -> list[str]:
    """Return the names of the classes with tests: those of a package, in the jar of the class path
    whose name is ``jar``, then its version, and ``-test``."""
    wanted = re.compile(rf"{re.escape(jar)}-[0-9.]+-test\.jar")
    found = next(one for one in path.split(":") if wanted.fullmatch(Path(one).name))
    with ZipFile(found) as opened:
        names = [name for name in opened.namelist() if name.endswith("Test.class")]
    named = [name.removesuffix(".class").replace("/", ".") for name in names]
    return sorted(name for name in named if name.startswith(package))


def _is_whole(built: Path) -> bool:
    """Return whether all is there: Maven's own folder may have been emptied since."""
    return built.is_dir() and all(Path(one).exists() for one in _read(built).split(":"))


def _read(built: Path) -> str:
    return f"{built}:{(built / 'class-path').read_text().strip()}"


def _build(built: Path, sources: Path) -> None:
    """Fill a folder next to ``built`` and rename it: others see all of it, or nothing."""
    _require("mvn")
    _require("javac")
    built.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=built.parent) as temporary:
        folder = Path(temporary, "classes")
        folder.mkdir()
        output = folder / "class-path"
        goal = ["dependency:build-classpath", f"-Dmdep.outputFile={output}"]
        maven = ["mvn", "-q", "-B", "-f", str(sources / "pom.xml"), *goal]
        subprocess.run(maven, check=True, stdout=subprocess.DEVNULL)
        programs = [str(path) for path in sources.rglob("*.java")]
        fetched = output.read_text().strip()
        subprocess.run(["javac", "-d", str(folder), "-cp", fetched, *programs], check=True)
        shutil.rmtree(built, ignore_errors=True)
        folder.rename(built)


def _require(program: str) -> None:
    if shutil.which(program) is None:
        raise NotBuilt(f"Kafka's tests need {program} on the PATH")
