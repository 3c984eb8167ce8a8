"""Records of the quorum's voter set."""

from quorate.common.types import Endpoint, Int32, Int64, VoterId
from quorate.metadata_log.records.value import MetadataValue


class QuorumVoter(MetadataValue, frozen=True, gc=False, kw_only=True):
    """A member of the metadata quorum."""

    voter_id: VoterId
    raft: Endpoint  # Where the other voters reach it.
    grpc: Endpoint  # Where clients of the quorum reach it.
    directory_id: bytes = b""  # 16 random bytes in its data folder; empty if not known yet.
    observer: bool = False  # It receives the log, and has no vote yet.


class QuorumVoterSet(MetadataValue, frozen=True, gc=False, kw_only=True, tag=15):
    """/quorum/voters: replaces the whole voter set. Only the quorum's leader writes it."""

    expected_version: Int64  # Compare-and-set: the version that it replaces; 0 if there was none.
    voters: tuple[QuorumVoter, ...]  # Differs from the set before by one change of one member.
    metadata_version: Int32 = 1  # Used with the first set: the level at which a new cluster begins.
