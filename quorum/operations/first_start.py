"""The record of the quorum's very first start: the voters and their data folders.

It is on disk before the voter's first vote, so that the voter can vouch for others that lost power
before theirs.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from quorate.common.files.data_folder import DataFolderError
from quorate.common.files.durable_files import write_durably

FIRST_VOTERS_FILE: Final = "first-voters.json"
FORMAT: Final = 1


def write_first_voters(folder: Path, directories: Mapping[int, bytes]) -> None:
    """Remember the directory id of each voter, durably."""
    voters = {str(voter_id): directory.hex() for voter_id, directory in directories.items()}
    content = json.dumps({"format": FORMAT, "voters": voters})
    write_durably(folder / FIRST_VOTERS_FILE, content.encode() + b"\n")


def read_first_voters(folder: Path) -> dict[int, bytes]:
    """Return what was remembered; it is empty if this voter has not begun.

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
