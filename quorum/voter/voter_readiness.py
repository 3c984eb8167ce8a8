"""Whether a voter takes part in the quorum: what ``/readyz`` of a voter answers."""

import asyncio
from typing import Final

from quorate.quorum.voter.voter import Voter
from quorate.quorum.voter.voter_status import quorum_status
from quorate_proto.v1 import quorum_pb2 as pb

RAFT_TIMEOUT_S: Final = 2.0


async def voter_why_unready(voter: Voter) -> str:
    """Return why ``voter`` does not take part in the quorum now; empty if it does."""
    if not voter.is_started:
        return "the voter starts"
    try:
        async with asyncio.timeout(RAFT_TIMEOUT_S):
            return why_unready(await quorum_status(voter))
    except TimeoutError:
        return f"its raft thread did not answer within {RAFT_TIMEOUT_S:g} s"


def why_unready(status: pb.QuorumStatusResponse) -> str:
    """Return why the voter of this status does not take part; empty if it does."""
    own = next((one for one in status.voters if one.voter_id == status.voter_id), None)
    if own is None:
        return "it is not a member of the quorum: let it in with `quorate quorum add-voter`"
    if own.stale:
        return f"its data folder is an old copy: {own.stale}"
    if own.observer:
        return "it is an observer, which has no vote until it has caught up"
    if not status.leader_id:
        return "it knows no leader"
    if status.applied_offset < status.commit_offset:
        return f"it has applied {status.applied_offset} of {status.commit_offset} committed entries"
    return ""
