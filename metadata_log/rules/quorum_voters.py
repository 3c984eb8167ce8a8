"""/quorum/voters: one change of one member at a time, written by the quorum's leader alone.

Sets that differ by one voter have majorities that overlap, so two leaders can never be elected by
neighbouring sets in one term. That the sets in use are neighbours follows from the compare-and-set:
a leader can name the version of the set before only once it has applied, so committed, that one.
"""

from collections.abc import Iterable, Sequence

from metadata_log.draft import Draft
from metadata_log.features import METADATA_VERSION
from metadata_log.image import VoterSet
from metadata_log.records import QuorumVoter, QuorumVoterSet, ResultCode
from metadata_log.rules.requirements import Refused, require_id
from metadata_log.types import MetadataOffset


def quorum_voter_set(draft: Draft, offset: MetadataOffset, record: QuorumVoterSet) -> int:
    if not draft.by_quorum:
        raise Refused(
            ResultCode.INVALID,
            "/quorum/voters is the quorum's own to write: use quorate quorum add-voter, "
            "remove-voter",
        )
    before = draft.voter_set
    if before.version != record.expected_version:
        raise Refused(
            ResultCode.VERSION_CONFLICT,
            f"/quorum/voters is at version {before.version}, not {record.expected_version}",
        )
    _require_sound(record.voters)
    if before.version:
        _require_one_change(before.voters, record.voters)
    elif draft.features.get(METADATA_VERSION) is None:
        draft.features.put(METADATA_VERSION, record.metadata_version)
    draft.voter_set = VoterSet(record.voters, offset)
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
    """A member may learn its directory id and get its vote; nothing else of it changes."""
    if (was.raft, was.grpc) != (becomes.raft, becomes.grpc):
        raise _invalid(f"voter {was.voter_id} cannot move: remove it, and add it again")
    if was.directory_id not in (b"", becomes.directory_id):
        raise _invalid(f"voter {was.voter_id} has another data folder: remove it, and add it again")
    if becomes.observer and not was.observer:
        raise _invalid(f"voter {was.voter_id} has a vote: it can only be removed")


def _invalid(detail: str) -> Refused:
    return Refused(ResultCode.INVALID, detail)


def _listed(values: Iterable[object]) -> str:
    return ", ".join(sorted(map(str, values)))
