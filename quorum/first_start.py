"""What a voter remembers of the very first start: whom it began with, in which data folders.

On disk before its first vote, so that it can vouch for voters that lost power before theirs.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from quorum.data_folder import DataFolderError, write_durably

FIRST_VOTERS_FILE: Final = "first-voters.json"
FORMAT: Final = 1


def write_first_voters(folder: Path, directories: Mapping[int, bytes]) -> None:
    """Remember the directory id of each voter, durably."""
    voters = {str(voter_id): directory.hex() for voter_id, directory in directories.items()}
    content = json.dumps({"format": FORMAT, "voters": voters})
    write_durably(folder / FIRST_VOTERS_FILE, content.encode() + b"\n")


def read_first_voters(folder: Path) -> dict[int, bytes]:
    """What was remembered; empty if this voter has not begun.

    Raises:
        DataFolderError: the file is malformed.
    """
    file = folder / FIRST_VOTERS_FILE
    if not file.exists():
        return {}
    try:
        found = json.loads(file.read_bytes())
        if found["format"] != FORMAT:
            raise ValueError(f"format {found['format']}, this version reads {FORMAT}")
        return {int(voter): bytes.fromhex(hexed) for voter, hexed in found["voters"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataFolderError(f"{file} is malformed ({error}): bring it back") from error
