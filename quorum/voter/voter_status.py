"""The status of the quorum as one voter knows it, as an answer and as metrics: members, leader,
progress.
"""

import asyncio
from collections.abc import Iterator
from typing import Final

from quorate.common.metrics.family import Family, MetricKind, Sample
from quorate.metadata_log.features import NEWEST_METADATA_VERSION
from quorate.metadata_log.records import QuorumVoter
from quorate.quorum.raft.raft_clock import clock_s
from quorate.quorum.raft.raft_node import RaftNode
from quorate.quorum.voter.voter import Voter
from quorate_proto.v1 import quorum_pb2 as pb

UNKNOWN = -1


async def quorum_status(voter: Voter) -> pb.QuorumStatusResponse:
    """Return the quorum as ``voter`` sees it. Only a leader knows the progress of the others."""
    response = await asyncio.wrap_future(voter.driver.call(_raft_status))
    response.voter_id = voter.config.voter_id
    response.cluster_id = voter.config.cluster_id
    response.leader_id = voter.leadership.leader_id
    response.sessions = len(voter.image.sessions)
    response.metadata_version_max = NEWEST_METADATA_VERSION
    return response


def _raft_status(node: RaftNode) -> pb.QuorumStatusResponse:
    return pb.QuorumStatusResponse(
        term=node.term,
        commit_offset=node.commit_index,
        applied_offset=node.last_applied,
        log_start_offset=node.journal.first_index,
        voter_set_version=node.admission.voter_set.version,
        voters=[_voter_status(node, member) for member in node.admission.members],
    )


def _voter_status(node: RaftNode, member: QuorumVoter) -> pb.VoterStatus:
    voter_id = member.voter_id
    status = pb.VoterStatus(
        voter_id=voter_id,
        raft_address=str(member.raft),
        grpc_address=str(member.grpc),
        connected=voter_id == node.own.voter_id or node.transport.is_connected(voter_id),
        match_offset=UNKNOWN,
        observer=member.observer,
        directory_id=member.directory_id or node.admission.directory_of(voter_id),
        lag=UNKNOWN,
        last_heard_ms=UNKNOWN,
        stale=node.admission.stale.get(voter_id, ""),
    )
    if voter_id == node.own.voter_id:
        status.match_offset = node.journal.last_index
        status.last_heard_ms = 0
    elif node.is_leader:
        other = next(n for n in (*node.others, *node.observers) if n.voter_id == voter_id)
        status.match_offset = node.match_index[other]
        status.last_heard_ms = max(0, int((clock_s() - node.last_response_s[other]) * 1000))
    if node.is_leader:
        status.lag = node.journal.last_index - status.match_offset
    return status


# The metrics of one voter: the answer of `quorum_status` as numbers.


_RAFT: Final = "raft-metrics"


def _raft(name: str, kafka_name: str, doc: str, labels: tuple[str, ...] = ()) -> Family:
    return Family(f"quorate_quorum_{name}", MetricKind.GAUGE, _RAFT, kafka_name, doc, labels)


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
STALE: Final = _raft(
    "voter_stale",
    "stale",
    "1 if a voter has left because its data folder is an old copy; it is to be replaced.",
    ("voter",),
)
LAG: Final = _raft(
    "voter_lag", "lag", "Entries that a voter is behind; told by the leader alone.", ("voter",)
)


async def voter_samples(voter: Voter) -> list[Sample]:
    """Return all metrics of ``voter``."""
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
        yield Sample(STALE, float(bool(other.stale)), label)
        if other.lag >= 0:
            yield Sample(LAG, other.lag, label)
