"""The names of segments in the log folder, and the removal of files that a crash left there."""

import re
from pathlib import Path
from typing import Final

from quorate.common.files.lmdb_lock_file import lock_file

UNFINISHED: Final = ".creating"
"""The suffix of a segment's file name until the file is complete and synced."""

SET_ASIDE: Final = ".damaged"
"""The suffix of the file name of a segment that was set aside."""

_NAME: Final = re.compile(r"segment-(\d{10})\.mdb")


def segment_name(segment_id: int) -> str:
    return f"segment-{segment_id:010d}.mdb"


def segment_id_of(path: Path) -> int | None:
    """Return the id in a segment's file name, or None if it is no segment's name."""
    match = _NAME.fullmatch(path.name)
    return int(match[1]) if match else None


def remove_segment_files(path: Path) -> None:
    path.unlink(missing_ok=True)
    lock_file(path).unlink(missing_ok=True)


def set_aside(path: Path) -> None:
    """Remove a segment or table from the log, but keep its file."""
    kept, turn = path.with_name(path.name + SET_ASIDE), 1
    while kept.exists():
        kept, turn = path.with_name(f"{path.name}{SET_ASIDE}.{turn}"), turn + 1
    path.rename(kept)
    lock_file(path).unlink(missing_ok=True)


def remove_unfinished_segments(directory: Path) -> None:
    """Remove the files of segments whose creation a crash interrupted."""
    for path in directory.glob(f"segment-*{UNFINISHED}*"):
        path.unlink(missing_ok=True)
