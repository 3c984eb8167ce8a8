"""The configuration of one voter of the quorum. Keys have Kafka's names where Kafka has the same
thing.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from quorate.common.configuration import (
    LOG_LEVEL,
    ConfigError,
    ConfigKey,
    ConfigSpec,
    Configuration,
    parse_endpoint,
    read_toml,
)
from quorate.common.metrics.metrics_endpoint import METRICS_LISTENER, metrics_listener
from quorate.common.tls.identity import Role, Security
from quorate.common.tls.tls_config import VOTER_SECURITY, check_security, configured_security
from quorate.common.types import Endpoint, VoterId
from quorate.metadata_log.records import QuorumVoter
from quorate.quorum.raft.raft_options import RaftOptions

NODE_ID: Final = ConfigKey(
    name="node.id", type=int, at_least=1, at_most=2**31 - 1, doc="This voter's id."
)
CLUSTER_ID: Final = ConfigKey(
    name="cluster.id", type=str, doc="The cluster this voter belongs to; the same on all voters."
)
DATA_DIR: Final = ConfigKey(
    name="data.dir", type=str, doc="Folder of the journal and of the snapshot."
)
QUORUM_VOTERS: Final = ConfigKey(
    name="quorum.voters",
    type=str,
    doc="All voters, this one included: id@host:raftport/grpcport,…",
)
RAFT_TIMEOUT_MIN_MS: Final = ConfigKey(
    name="raft.election.timeout.min.ms",
    type=int,
    default=300,
    at_least=50,
    doc="Silence of the leader after which a voter may stand for election, at the least.",
)
RAFT_TIMEOUT_MAX_MS: Final = ConfigKey(
    name="raft.election.timeout.max.ms",
    type=int,
    default=600,
    at_least=60,
    doc="Silence of the leader after which a voter stands for election, at the most.",
)
SESSION_TIMEOUT_MIN_MS: Final = ConfigKey(
    name="session.timeout.min.ms",
    type=int,
    default=200,
    at_least=100,
    doc="Shortest session timeout that is granted.",
)
SESSION_TIMEOUT_MAX_MS: Final = ConfigKey(
    name="session.timeout.max.ms",
    type=int,
    default=60_000,
    at_least=1_000,
    doc="Longest session timeout that is granted.",
)
SNAPSHOT_MAX_BYTES: Final = ConfigKey(
    name="metadata.log.max.record.bytes.between.snapshots",
    type=int,
    default=20 << 20,
    at_least=1_024,
    doc="A snapshot is written after this many bytes of log, which are also held in memory.",
)
SNAPSHOT_MAX_RECORDS: Final = ConfigKey(
    name="metadata.log.max.records.between.snapshots",
    type=int,
    default=50_000,
    at_least=10,
    doc="A snapshot is written after this many entries of log, which a restart applies again.",
)
RETAINED_RECORDS: Final = ConfigKey(
    name="metadata.log.retained.records",
    type=int,
    default=20_000,
    at_least=0,
    doc="Entries kept before a snapshot, so that watchers and slow voters need no snapshot.",
)
RETAINED_BYTES: Final = ConfigKey(
    name="metadata.log.retained.bytes",
    type=int,
    default=16 << 20,
    at_least=0,
    doc="At most so many bytes of entries are kept before a snapshot; they are held in memory.",
)
QUORUM_SPEC: Final = ConfigSpec(
    "quorum voter",
    (
        NODE_ID,
        CLUSTER_ID,
        DATA_DIR,
        QUORUM_VOTERS,
        RAFT_TIMEOUT_MIN_MS,
        RAFT_TIMEOUT_MAX_MS,
        SESSION_TIMEOUT_MIN_MS,
        SESSION_TIMEOUT_MAX_MS,
        SNAPSHOT_MAX_BYTES,
        SNAPSHOT_MAX_RECORDS,
        RETAINED_RECORDS,
        RETAINED_BYTES,
        *VOTER_SECURITY,
        METRICS_LISTENER,
        LOG_LEVEL,
    ),
)


class ConfiguredVoter(msgspec.Struct, frozen=True):
    """One voter as ``quorum.voters`` names it."""

    voter_id: VoterId
    raft: Endpoint
    grpc: Endpoint

    def as_member(self) -> QuorumVoter:
        """Return the voter as a member of the voter set whose data folder is not known."""
        return QuorumVoter(voter_id=self.voter_id, raft=self.raft, grpc=self.grpc)


class QuorumConfig(msgspec.Struct, frozen=True):
    """A voter's configuration, checked as a whole."""

    values: Configuration
    voters: tuple[ConfiguredVoter, ...]

    @property
    def voter_id(self) -> VoterId:
        return VoterId(self.values[NODE_ID])

    @property
    def cluster_id(self) -> str:
        return self.values[CLUSTER_ID]

    @property
    def data_dir(self) -> Path:
        return Path(self.values[DATA_DIR])

    @property
    def raft_options(self) -> RaftOptions:
        return RaftOptions(
            election_timeout_min_s=self.values[RAFT_TIMEOUT_MIN_MS] / 1000,
            election_timeout_max_s=self.values[RAFT_TIMEOUT_MAX_MS] / 1000,
            snapshot_max_entries=self.values[SNAPSHOT_MAX_RECORDS],
            snapshot_max_bytes=self.values[SNAPSHOT_MAX_BYTES],
            retained_entries=self.values[RETAINED_RECORDS],
            retained_bytes=self.values[RETAINED_BYTES],
        )

    @property
    def own(self) -> ConfiguredVoter:
        return next(voter for voter in self.voters if voter.voter_id == self.voter_id)

    def security(self) -> Security | None:
        """Return this voter's certificates, read and checked, or None for plain text on loopback.

        Raises:
            SecurityError: they cannot be used.
        """
        return configured_security(VOTER_SECURITY, self.values, Role.VOTER, self.voter_id)


def load_quorum_config(path: Path, overrides: Mapping[str, object]) -> QuorumConfig:
    """Return the configuration in the TOML file ``path``, with ``overrides`` (``--set``) on top.

    Raises:
        ConfigError: unreadable, or a key or value is wrong.
    """
    return quorum_config({**read_toml(path), **overrides})


def quorum_config(values: Mapping[str, object]) -> QuorumConfig:
    """Return the configuration in ``values``, by key.

    Raises:
        ConfigError: a key or value is wrong, or two contradict each other.
    """
    parsed = QUORUM_SPEC.parse(values)
    config = QuorumConfig(parsed, parse_voters(parsed[QUORUM_VOTERS]))
    if not config.cluster_id:
        raise ConfigError("cluster.id is empty: give all voters of the cluster the same id")
    if config.voter_id not in {voter.voter_id for voter in config.voters}:
        raise ConfigError(f"node.id={config.voter_id} is not among quorum.voters")
    endpoints = [end for voter in config.voters for end in (voter.raft, voter.grpc)]
    check_security(VOTER_SECURITY, parsed, QUORUM_VOTERS.name, endpoints)
    metrics_listener(parsed[METRICS_LISTENER])
    if parsed[RAFT_TIMEOUT_MAX_MS] <= parsed[RAFT_TIMEOUT_MIN_MS]:
        raise ConfigError(
            f"{RAFT_TIMEOUT_MAX_MS.name}={parsed[RAFT_TIMEOUT_MAX_MS]}: must be greater than "
            f"{RAFT_TIMEOUT_MIN_MS.name}={parsed[RAFT_TIMEOUT_MIN_MS]}"
        )
    return config


def parse_voters(value: str) -> tuple[ConfiguredVoter, ...]:
    """Parse ``1@host:7001/7101,2@…``; return the voters in order of their ids.

    Raises:
        ConfigError: not of that form, or an id or address is there twice.
    """
    voters = sorted((_parse_voter(part) for part in value.split(",")), key=lambda v: v.voter_id)
    for what in (
        [voter.voter_id for voter in voters],
        [endpoint for voter in voters for endpoint in (voter.raft, voter.grpc)],
    ):
        if len(set(what)) != len(what):
            raise ConfigError(f"{QUORUM_VOTERS.name}={value}: an id or address is there twice")
    return tuple(voters)


def _parse_voter(part: str) -> ConfiguredVoter:
    voter_id, at, address = part.strip().partition("@")
    raft, slash, grpc_port = address.partition("/")
    if not at or not slash or not voter_id.isdecimal() or not 1 <= int(voter_id) < 2**31:
        raise ConfigError(
            f"{QUORUM_VOTERS.name}: {part.strip()!r} must be id@host:raftport/grpcport"
        )
    endpoint = parse_endpoint(QUORUM_VOTERS.name, raft)
    grpc = parse_endpoint(QUORUM_VOTERS.name, f"{endpoint.host}:{grpc_port}")
    if 0 in (endpoint.port, grpc.port):
        raise ConfigError(f"{QUORUM_VOTERS.name}: {part.strip()!r}: ports must be fixed, not 0")
    return ConfiguredVoter(VoterId(int(voter_id)), endpoint, grpc)
