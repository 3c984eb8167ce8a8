"""Rules of /quorum/voters: the quorum's leader changes one member at a time.

Sets that differ by one voter have majorities that overlap, so neighbouring sets can never elect two
leaders in one term. The compare-and-set ensures that the sets in use are neighbours: a leader can
name the version of the set before only once it has applied, and so committed, that one.
"""

from collections.abc import Iterable, Sequence

from quorate.common.types import MetadataOffset
from quorate.metadata_log.draft import Draft, require_id
from quorate.metadata_log.image import METADATA_VERSION, VoterSet
from quorate.metadata_log.records import OperationRefused, QuorumVoter, QuorumVoterSet, ResultCode


def quorum_voter_set(draft: Draft, offset: MetadataOffset, record: QuorumVoterSet) -> int:
    if not draft.by_quorum:
        raise OperationRefused(
            ResultCode.INVALID,
            "/quorum/voters is the quorum's own to write: use quorate quorum add-voter, "
            "remove-voter",
        )
    before = draft.voter_set
    if before.version != record.expected_version:
        raise OperationRefused(
            ResultCode.VERSION_CONFLICT,
            f"/quorum/voters is at version {before.version}, not {record.expected_version}",
        )
    _require_sound(record.voters)
    if before.version:
        _require_one_change(before.voters, record.voters)
    elif draft.features.get(METADATA_VERSION) is None:
        draft.features.put(METADATA_VERSION, record.metadata_version)
    draft.put_voter_set(VoterSet(record.voters, offset))
    return offset


def _require_sound(voters: Sequence[QuorumVoter]) -> None:
    if not any(not voter.observer for voter in voters):
        raise _invalid("a quorum needs at least one voter")
    _require_distinct("voter ids", [voter.voter_id for voter in voters])
    endpoints = [endpoint for voter in voters for endpoint in (voter.raft, voter.grpc)]
    _require_distinct("addresses", endpoints)
    for voter in voters:
        if voter.directory_id or not voter.observer:
            require_id(f"directory id of voter {voter.voter_id}", voter.directory_id)


def _require_distinct(what: str, values: Sequence[object]) -> None:
    if len(set(values)) != len(values):
        raise _invalid(f"{what} are not distinct: {_listed(values)}")


def _require_one_change(before: Sequence[QuorumVoter], after: Sequence[QuorumVoter]) -> None:
    old = {voter.voter_id: voter for voter in before}
    new = {voter.voter_id: voter for voter in after}
    changed = [
        voter_id for voter_id in old.keys() | new.keys() if old.get(voter_id) != new.get(voter_id)
    ]
    if len(changed) != 1:
        raise _invalid(f"one member may change at a time, not {len(changed)}: {_listed(changed)}")
    was, becomes = old.get(changed[0]), new.get(changed[0])
    if becomes is None:
        return
    if was is None:
        if not becomes.observer:
            raise _invalid(f"voter {becomes.voter_id} must be an observer first, to catch up")
        return
    _require_promotion(was, becomes)


def _require_promotion(was: QuorumVoter, becomes: QuorumVoter) -> None:
    """Refuse anything but that a member learns its directory id or gets its vote."""
    if (was.raft, was.grpc) != (becomes.raft, becomes.grpc):
        raise _invalid(f"voter {was.voter_id} cannot move: remove it, and add it again")
    if was.directory_id not in (b"", becomes.directory_id):
        raise _invalid(f"voter {was.voter_id} has another data folder: remove it, and add it again")
    if becomes.observer and not was.observer:
        raise _invalid(f"voter {was.voter_id} has a vote: it can only be removed")


def _invalid(detail: str) -> OperationRefused:
    return OperationRefused(ResultCode.INVALID, detail)


def _listed(values: Iterable[object]) -> str:
    return ", ".join(sorted(map(str, values)))
