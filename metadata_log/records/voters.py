"""Records of who the quorum's voters are."""

from metadata_log.records.value import Value
from metadata_log.types import (
    Endpoint,
    Int32,
    Int64,
    VoterId,
)


class QuorumVoter(Value, frozen=True, gc=False, kw_only=True):
    """A member of the metadata quorum."""

    voter_id: VoterId
    raft: Endpoint  # Where the other voters reach it.
    grpc: Endpoint  # Where clients of the quorum reach it.
    directory_id: bytes = b""  # 16 random bytes in its data folder; empty: not known yet.
    observer: bool = False  # It receives the log, and has no vote yet.


class QuorumVoterSet(Value, frozen=True, gc=False, kw_only=True, tag=15):
    """/quorum/voters: the whole set, in place of the one before. The quorum's leader's to write."""

    expected_version: Int64  # Compare-and-set: the version it replaces; 0 = there was none.
    voters: tuple[QuorumVoter, ...]  # Differs from the set before by one change of one member.
    metadata_version: Int32 = 1  # Of the first set: what a new cluster begins at.
