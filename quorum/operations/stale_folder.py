"""The mark of a data folder that was found to be an old copy.

The voter leaves when another one tells it so. It may be started again when that one is down, and
nobody else knows: therefore the folder itself is marked, and is refused from then on.
"""

import logging
from pathlib import Path
from typing import Final

from quorate.common.files.checked_json import decode_checked_json, encode_checked_json
from quorate.common.files.durable_files import write_durably
from quorate.quorum.raft.leaving import VoterStale

log = logging.getLogger(__name__)

STALE_FILE: Final = "stale.json"
FORMAT: Final = 1


def remember_stale(folder: Path, detail: str) -> None:
    """Mark the folder, durably. A disk that takes no mark does not keep the voter from leaving."""
    try:
        write_durably(
            folder / STALE_FILE, encode_checked_json({"format": FORMAT, "detail": detail})
        )
    except OSError as error:
        log.error("cannot write %s: %s", folder / STALE_FILE, error.strerror)


def require_not_stale(folder: Path) -> None:
    """Refuse a marked folder, whatever its mark looks like.

    Raises:
        VoterStale: it is marked.
    """
    file = folder / STALE_FILE
    if not file.exists():
        return
    try:
        detail = str(decode_checked_json(file.read_bytes())["detail"])
    except (OSError, ValueError, KeyError) as error:
        detail = (
            f"the data folder {folder} was found to be an old copy ({file.name} is there, and is "
            f"malformed: {error}). Put the newest folder in its place; or, if that cannot be, "
            "empty it, remove this voter with `quorate quorum remove-voter` and add it again"
        )
    raise VoterStale(detail)
