"""Names of segments in the log folder, and what a crash may leave there."""

import re
from pathlib import Path
from typing import Final

from quorum.lmdb_lock_file import lock_file

UNFINISHED: Final = ".creating"
"""Ends the name of a segment until it is whole and synced."""

SET_ASIDE: Final = ".damaged"
"""Ends the name of a segment that was set aside."""

_NAME: Final = re.compile(r"segment-(\d{10})\.mdb")


def segment_name(segment_id: int) -> str:
    return f"segment-{segment_id:010d}.mdb"


def segment_id_of(path: Path) -> int | None:
    """The id in a segment's file name, or None if it is not one."""
    match = _NAME.fullmatch(path.name)
    return int(match[1]) if match else None


def remove_segment_files(path: Path) -> None:
    path.unlink(missing_ok=True)
    lock_file(path).unlink(missing_ok=True)


def set_aside(path: Path) -> None:
    """Take a segment out of the log, and keep its bytes."""
    path.rename(path.with_name(path.name + SET_ASIDE))
    lock_file(path).unlink(missing_ok=True)


def remove_unfinished_segments(directory: Path) -> None:
    """Remove what a crash left of segments that never got their name."""
    for path in directory.glob(f"segment-*{UNFINISHED}*"):
        path.unlink(missing_ok=True)
