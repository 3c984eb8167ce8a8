"""Whose a session is: the broker's whose certificate opened it."""

import re
from typing import Final

from quorate.common.types import NO_BROKER, BrokerId
from quorate.metadata_log.features import PROVEN_WRITERS

DESCRIPTION_CHARACTERS_MAX: Final = 256

_OF_BROKER: Final = re.compile(r"\s*broker\s+(\d+)\b.*", re.IGNORECASE | re.DOTALL)


def session_owner(broker_id: BrokerId | None, metadata_version: int) -> BrokerId:
    """Return the broker that a new session is bound to.

    It is none in plain text, for an administrator, and at levels at which some voters would not
    keep it.
    """
    if broker_id is None or metadata_version < PROVEN_WRITERS:
        return NO_BROKER
    return broker_id


def why_not_describe(description: str, broker_id: BrokerId | None) -> str | None:
    """Return why a session may not be described like this, or None if it may.

    The description names the writer in the history of the metadata, so a broker that has proved
    its id does not describe itself as another one.
    """
    if len(description) > DESCRIPTION_CHARACTERS_MAX:
        return (
            f"a description has {DESCRIPTION_CHARACTERS_MAX} characters at most, and this one has "
            f"{len(description)}"
        )
    claimed = _OF_BROKER.fullmatch(description)
    if claimed is None or broker_id is None or int(claimed[1]) == broker_id:
        return None
    return f"a session of broker {claimed[1]} is not broker {broker_id}'s to open"
