"""A voter says whether it takes part in the quorum, and why not."""

from typing import Any

import pytest

from quorate.quorum.voter.voter_readiness import why_unready
from quorate_proto.v1 import quorum_pb2 as pb


def status(leader_id: int = 2, applied: int = 7, **own: Any) -> pb.QuorumStatusResponse:  # noqa: ANN401 - fields of a message
    """What voter 1 knows."""
    return pb.QuorumStatusResponse(
        voter_id=1,
        leader_id=leader_id,
        commit_offset=7,
        applied_offset=applied,
        voters=[pb.VoterStatus(**({"voter_id": 1} | own)), pb.VoterStatus(voter_id=2)],
    )


def test_a_voter_that_knows_the_leader_and_has_applied_everything_is_ready() -> None:
    assert why_unready(status()) == ""


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (status(voter_id=3), "not a member of the quorum"),
        (status(observer=True), "an observer"),
        (status(stale="it ends at 3"), "an old copy: it ends at 3"),
        (status(leader_id=0), "knows no leader"),
        (status(applied=5), "has applied 5 of 7"),
    ],
)
def test_any_other_voter_says_why_it_is_not(found: pb.QuorumStatusResponse, reason: str) -> None:
    assert reason in why_unready(found)
