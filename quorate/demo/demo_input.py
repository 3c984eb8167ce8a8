"""The demo's input: every line of text files, as records with the file's path as key."""

import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PROBE_BYTES: Final = 8_192
_SKIPPED_FOLDERS: Final = frozenset({"__pycache__", "node_modules", "build", "dist", "artifacts"})


class NoInput(Exception):
    """There is nothing to produce. The message says which place was searched."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the input, which becomes one record."""

    path: str
    text: bytes
    end: int
    """The bytes of the input up to the end of this line."""


@dataclass(frozen=True)
class DemoInput:
    """The text files that are produced, all under one root."""

    root: Path
    paths: Sequence[Path]
    size_bytes: int

    def lines(self) -> Iterator[Line]:
        """Yield every line of every file, without its line end. Empty lines are included."""
        end = 0
        for path in self.paths:
            name = path.relative_to(self.root).as_posix()
            with path.open("rb") as content:
                for line in content:
                    end += len(line)
                    yield Line(name, line.rstrip(b"\r\n"), end)


def find_demo_input(given: str) -> DemoInput:
    """Find the text files of ``given``, a file or folder; if it is empty, those of the project.

    Raises:
        NoInput: the path does not exist or holds no text.
    """
    root = Path(given).expanduser().resolve() if given else project_root()
    if not root.exists():
        raise NoInput(f"DEMO_INPUT={given}: no such file or folder")
    candidates = [root] if root.is_file() else tracked_files(root) or list(_walk(root))
    paths = [path for path in candidates if path.is_file() and is_text(path)]
    size_bytes = sum(path.stat().st_size for path in paths)
    if not size_bytes:
        raise NoInput(f"no text file in {root}: set DEMO_INPUT to a file or folder that has some")
    return DemoInput(root.parent if root.is_file() else root, sorted(paths), size_bytes)


def project_root() -> Path:
    """Return the checkout that holds this package, or the current folder if there is none."""
    checkout = Path(__file__).resolve().parents[2]
    return checkout if (checkout / "pyproject.toml").is_file() else Path.cwd()


def tracked_files(root: Path) -> list[Path]:
    """Return the files under ``root`` that git tracks; none without a checkout or without git."""
    try:
        listed = subprocess.run(
            ["git", "-C", str(root), "ls-files", "-z"], capture_output=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return []
    return [root / name for name in listed.stdout.decode(errors="replace").split("\0") if name]


def is_text(path: Path) -> bool:
    """Return True if the beginning of the file has no NUL byte."""
    try:
        with path.open("rb") as content:
            return b"\0" not in content.read(_PROBE_BYTES)
    except OSError:
        return False


def _walk(root: Path) -> Iterator[Path]:
    for path in sorted(root.iterdir()):
        if path.name.startswith(".") or path.name in _SKIPPED_FOLDERS or path.is_symlink():
            continue
        if path.is_dir():
            yield from _walk(path)
        else:
            yield path
