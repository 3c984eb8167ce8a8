"""What one voter knows of the quorum: who is in it, who leads, how far everybody is."""

import asyncio

from metadata_log.features import NEWEST_METADATA_VERSION
from metadata_log.records import QuorumVoter
from quorate_proto.v1 import quorum_pb2 as pb
from quorum.raft.clock import clock_s
from quorum.raft.node import RaftNode
from quorum.voter import Voter

UNKNOWN = -1


async def quorum_status(voter: Voter) -> pb.QuorumStatusResponse:
    """The quorum as ``voter`` sees it; only a leader knows how far the others are."""
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
