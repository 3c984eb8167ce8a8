"""A voter says whether it takes part in the quorum, and why not."""

import pytest

from quorate.quorum.voter.voter_readiness import why_unready
from quorate_proto.v1 import quorum_pb2 as pb


def status(
    own: pb.VoterStatus | None = None, leader_id: int = 2, applied: int = 7
) -> pb.QuorumStatusResponse:
    """What voter 1 knows. ``own``: of itself."""
    return pb.QuorumStatusResponse(
        voter_id=1,
        leader_id=leader_id,
        commit_offset=7,
        applied_offset=applied,
        voters=[own or pb.VoterStatus(voter_id=1), pb.VoterStatus(voter_id=2)],
    )


def test_a_voter_that_knows_the_leader_and_has_applied_everything_is_ready() -> None:
    assert why_unready(status()) == ""


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (status(pb.VoterStatus(voter_id=3)), "not a member of the quorum"),
        (status(pb.VoterStatus(voter_id=1, observer=True)), "an observer"),
        (status(pb.VoterStatus(voter_id=1, stale="it ends at 3")), "an old copy: it ends at 3"),
        (status(leader_id=0), "knows no leader"),
        (status(applied=5), "has applied 5 of 7"),
    ],
)
def test_any_other_voter_says_why_it_is_not(found: pb.QuorumStatusResponse, reason: str) -> None:
    assert reason in why_unready(found)
