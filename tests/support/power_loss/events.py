"""Reads what the recorder wrote: events in the order in which they happened. It also starts the
recorder."""

import os
import shutil
import struct
import subprocess
from collections.abc import Iterator, Mapping
from enum import IntEnum
from pathlib import Path
from typing import Final, NamedTuple

_HEADER: Final = struct.Struct("<QQqIBBxx")
_SOURCE: Final = Path(__file__).with_name("recorder.c")

_KILLED_AT: Final = "killed-at-"

LOCK_SUFFIX: Final = "-lock"
"""Files that are not recorded: LMDB writes them anew when it is the first to open."""


class Kind(IntEnum):
    """The kind of an event. The begin and the end of one operation carry the same ``operation``."""

    OPEN = ord("O")
    WRITE = ord("W")
    WRITTEN = ord("w")
    SYNC = ord("F")
    SYNCED = ord("f")
    TRUNCATE = ord("T")
    RENAME = ord("R")
    UNLINK = ord("U")
    MAKE_FOLDER = ord("D")
    MARK = ord("M")
    FOREIGN = ord("X")


class Event(NamedTuple):
    """``file``: as its OPEN called it. ``offset``: of a write, the new size, or the result."""

    kind: Kind
    operation: int
    file: int
    offset: int
    created: bool
    write_through: bool
    data: bytes

    @property
    def text(self) -> str:
        return self.data.decode()


class Recording(NamedTuple):
    """A folder in which ``root`` is recorded."""

    root: Path
    log: Path
    marks: Path
    library: Path

    @property
    def before(self) -> Path:
        """The place of a copy of ``root`` as it was before, unless it was empty, and of the
        promises made."""
        return self.root.parent / "before"

    @property
    def promises(self) -> Path:
        return self.root.parent / "promises"

    @classmethod
    def at(cls, folder: Path) -> "Recording":
        """The recording in ``folder``."""
        return cls(folder / "root", folder / "events", folder / "marks", folder / "recorder.so")

    @classmethod
    def begun(cls, folder: Path) -> "Recording":
        """A new one.

        Raises:
            subprocess.CalledProcessError: the recorder does not compile.
        """
        made = cls.at(folder)
        made.root.mkdir(parents=True)
        command = ["-O1", "-shared", "-fPIC", "-o", str(made.library), str(_SOURCE), "-ldl"]
        subprocess.run([compiler() or "cc", *command], check=True)
        return made

    def environment(self) -> Mapping[str, str]:
        """Return the environment for a process that is to be recorded."""
        return {
            **os.environ,
            "LD_PRELOAD": str(self.library),
            "RECORD_ROOT": str(self.root),
            "RECORD_MARKS": str(self.marks),
            "RECORD_LOG": str(self.log),
        }

    def note_kill(self) -> None:
        """The recorded process was killed: keep what its writes came to.

        An event that was cut short had not begun to happen.
        """
        events = list(self.read())
        os.truncate(self.log, sum(_HEADER.size + len(event.data) for event in events))
        count = len(events)
        shutil.copytree(self.root, self.root.parent / f"{_KILLED_AT}{count}")

    def kills(self) -> Iterator[tuple[int, Path]]:
        """Yield the event before which a process had been killed, and the folder with what it left
        of ``root``."""
        for path in self.root.parent.glob(f"{_KILLED_AT}*"):
            yield int(path.name.removeprefix(_KILLED_AT)), path

    def read(self) -> Iterator[Event]:
        """The events so far."""
        with self.log.open("rb") as file:
            while len(header := file.read(_HEADER.size)) == _HEADER.size:
                operation, number, offset, length, kind, flags = _HEADER.unpack(header)
                data = file.read(length)
                if len(data) < length:
                    return
                yield Event(
                    Kind(kind), operation, number, offset, bool(flags & 1), bool(flags & 2), data
                )


def compiler() -> str | None:
    """The C compiler of this machine."""
    return shutil.which("cc") or shutil.which("gcc")


def is_recorded(path: Path) -> bool:
    """Whether a file below the root is looked at."""
    return not path.name.endswith(LOCK_SUFFIX)
