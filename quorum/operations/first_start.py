"""The record of the quorum's very first start: the voters and their data folders.

It is on disk before the voter's first vote, so that the voter can vouch for others that lost power
before theirs.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from quorate.common.files.checked_json import (
    CHECKSUM,
    decode_checked_json,
    decode_json_object,
    encode_checked_json,
)
from quorate.common.files.data_folder import REPLACE, DataFolderError
from quorate.common.files.durable_files import write_durably

FIRST_VOTERS_FILE: Final = "first-voters.json"
FORMAT: Final = 2
_WITHOUT_CHECKSUM: Final = 1
"""The format before the record had a checksum. It is rewritten when it is read."""


def write_first_voters(folder: Path, directories: Mapping[int, bytes]) -> None:
    """Remember the directory id of each voter, durably.

    Raises:
        DataFolderError: the disk is full or failed.
    """
    voters = {str(voter_id): directory.hex() for voter_id, directory in directories.items()}
    file = folder / FIRST_VOTERS_FILE
    try:
        write_durably(file, encode_checked_json({"format": FORMAT, "voters": voters}))
    except OSError as error:
        raise DataFolderError(
            f"cannot write {file}: {error.strerror}. Free space or repair the disk, then start "
            "this voter again"
        ) from error


def read_first_voters(folder: Path) -> dict[int, bytes]:
    """Return what was remembered; it is empty if this voter has not begun.

    Raises:
        DataFolderError: the file is malformed.
    """
    file = folder / FIRST_VOTERS_FILE
    try:
        data = file.read_bytes()
        unchecked = decode_json_object(data)
        if int(unchecked["format"]) > FORMAT:
            raise DataFolderError(
                f"{file} has format {unchecked['format']}, this version reads {FORMAT}: start this "
                "voter with the newer release that wrote it, or restore the file if it is damaged"
            )
        is_old = unchecked["format"] == _WITHOUT_CHECKSUM and CHECKSUM not in unchecked
        content = unchecked if is_old else decode_checked_json(data)
        found = {int(voter): bytes.fromhex(hexed) for voter, hexed in content["voters"].items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataFolderError(f"{file} is malformed ({error}). {REPLACE}") from error
    if is_old:
        write_first_voters(folder, found)
    return found
