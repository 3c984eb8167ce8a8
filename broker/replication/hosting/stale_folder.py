"""Whether the log folder is an old copy, or has lost its last minutes (rule 8).

The quorum knows two things of the folder. The first is the incarnation of this broker that was
registered last: the folder wrote its id before that. The second is a mark: the folder wrote it
before the quorum heard of it. A folder that lacks one of them is older than what the quorum knows.
"""

from collections.abc import Sequence

from quorate.metadata_log.image import BrokerHistory


def why_stale(
    history: BrokerHistory | None, incarnations: Sequence[bytes], mark: int, restored_offset: int
) -> str | None:
    """Return why the folder with these incarnations and this mark is an old one, or None.

    ``history`` is what the quorum knows, or None if it remembers nothing of this broker. A quorum
    that was restored from a backup may know older incarnations than the folder does: what it knows
    from before says nothing.
    """
    if history is None or history.epoch < restored_offset:
        return None
    if history.incarnation_id not in incarnations:
        return (
            f"it does not know incarnation {history.incarnation_id.hex()}, which was registered "
            f"last (epoch {history.epoch})"
        )
    if mark < history.mark:
        return f"its mark is {mark}, and the quorum has seen {history.mark}"
    return None
