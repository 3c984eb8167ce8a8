"""Figures of one voter: what `quorum_status` says, as numbers."""

from collections.abc import Iterator
from typing import Final

from quorate_proto.v1 import quorum_pb2 as pb
from quorum.metrics.family import Family, Kind, Sample
from quorum.status import quorum_status
from quorum.voter import Voter

_RAFT: Final = "raft-metrics"


def _raft(name: str, kafka_name: str, doc: str, labels: tuple[str, ...] = ()) -> Family:
    return Family(f"quorate_quorum_{name}", Kind.GAUGE, _RAFT, kafka_name, doc, labels)


IS_LEADER: Final = _raft(
    "leader", "current-state", "1 at the leader; the sum over all voters is to be 1."
)
LEADER_ID: Final = _raft("leader_id", "current-leader", "The leader as this voter knows it, or 0.")
TERM: Final = _raft("term", "current-epoch", "Raft term.")
COMMITTED: Final = _raft("commit_offset", "high-watermark", "Offset up to which is committed.")
APPLIED: Final = _raft("applied_offset", "last-applied-offset", "Offset up to which is applied.")
LOG_START: Final = _raft("log_start_offset", "log-start-offset", "First entry of the journal.")
SESSIONS: Final = _raft("sessions", "sessions", "Open sessions: brokers and their like.")
WATCHERS: Final = _raft("watchers", "watchers", "Watches served by this voter.")
CONNECTED: Final = _raft(
    "voter_connected", "connected", "Whether this voter is connected to another.", ("voter",)
)
LAG: Final = _raft(
    "voter_lag", "lag", "Entries that a voter is behind; told by the leader alone.", ("voter",)
)


async def voter_samples(voter: Voter) -> list[Sample]:
    """All figures of ``voter``."""
    return list(_samples(await quorum_status(voter), voter))


def _samples(status: pb.QuorumStatusResponse, voter: Voter) -> Iterator[Sample]:
    yield Sample(IS_LEADER, float(status.leader_id == status.voter_id))
    yield Sample(LEADER_ID, status.leader_id)
    yield Sample(TERM, status.term)
    yield Sample(COMMITTED, status.commit_offset)
    yield Sample(APPLIED, status.applied_offset)
    yield Sample(LOG_START, status.log_start_offset)
    yield Sample(SESSIONS, status.sessions)
    yield Sample(WATCHERS, voter.watchers)
    for other in status.voters:
        label = (str(other.voter_id),)
        yield Sample(CONNECTED, float(other.connected), label)
        if other.lag >= 0:
            yield Sample(LAG, other.lag, label)
