"""Builds the archives, finds Pythons, and installs an archive in an empty environment; with uv."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

SUPPORTED: Final = ("3.11", "3.12", "3.13")
"""The Pythons that a release must work with."""

_KEPT: Final = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "SSL_CERT_FILE", "no_proxy", "NO_PROXY")
_KEPT_PREFIXES: Final = ("UV_", "PIP_", "http_", "https_", "HTTP_", "HTTPS_")


class CommandFailed(Exception):
    """A program ended with an error; the message is its command and what it said last."""


def run(
    command: Sequence[str | Path],
    folder: Path,
    *,
    stdin: str = "",
    more: Mapping[str, str] | None = None,
) -> str:
    """Run a program as a user who has no checkout, and return what it prints.

    Raises:
        CommandFailed: it ended with an error.
    """
    done = subprocess.run(
        list(command),
        cwd=folder,
        env={**clean_environment(os.environ), **(more or {})},
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        words = " ".join(map(str, command))
        raise CommandFailed(
            f"{words}: exit code {done.returncode}\n{done.stdout[-1000:]}{done.stderr[-3000:]}"
        )
    return done.stdout


def clean_environment(given: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that programs need everywhere: nothing that leads to a checkout, and no
    settings of Python or of Quorate."""
    return {
        name: value
        for name, value in given.items()
        if name in _KEPT or name.startswith(_KEPT_PREFIXES)
    }


def find_uv(root: Path) -> Path:
    """Return the uv on the path, or the one that ``make setup`` has installed.

    Raises:
        CommandFailed: there is none.
    """
    for candidate in (shutil.which("uv"), shutil.which("uv", path=str(root / ".uv" / "bin"))):
        if candidate is not None:
            return Path(candidate)
    raise CommandFailed("there is no uv: install it, or run `make setup`")


def build_archives(root: Path, folder: Path) -> list[Path]:
    """Build the wheel and the source archive, and return their paths."""
    for target in ("wheel", "sdist"):
        run([sys.executable, "-m", "hatchling", "build", "-t", target, "-d", folder], root)
    return sorted(folder.iterdir(), key=lambda path: path.suffix != ".whl")


def find_pythons(
    uv: Path, wanted: Iterable[str], folder: Path, pyenv: Path
) -> dict[str, Path | None]:
    """Return an interpreter for each wanted version: one that uv finds, one in the folder of pyenv,
    or one that uv fetches. None where there is none of them."""
    return {
        version: (
            _found(uv, version, folder)
            or _of_pyenv(pyenv, version)
            or _fetched(uv, version, folder)
        )
        for version in wanted
    }


def _found(uv: Path, version: str, folder: Path) -> Path | None:
    try:
        return Path(run([uv, "python", "find", "--no-project", version], folder).strip())
    except CommandFailed:
        return None


def _of_pyenv(pyenv: Path, version: str) -> Path | None:
    return max(pyenv.glob(f"versions/{version}.*/bin/python{version}"), default=None)


def _fetched(uv: Path, version: str, folder: Path) -> Path | None:
    try:
        run([uv, "python", "install", version], folder)
    except CommandFailed:
        return None
    return _found(uv, version, folder)


def pyenv_folder(environment: Mapping[str, str]) -> Path:
    """Return where pyenv keeps its Pythons. Those that are not chosen do not run by their name."""
    return Path(environment.get("PYENV_ROOT", Path.home() / ".pyenv"))


def install(uv: Path, python: Path, archive: Path, folder: Path) -> Path:
    """Install the archive and what it depends on in a new environment, and return its programs'
    folder.

    Raises:
        CommandFailed: it cannot be installed.
    """
    venv = folder / "venv"
    run([uv, "venv", "--python", python, venv], folder)
    target: list[str | Path] = ["--python", venv / "bin" / "python", "--compile-bytecode"]
    run([uv, "pip", "install", *target, archive], folder)
    return venv / "bin"
