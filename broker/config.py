"""Configuration of one broker. Kafka's names where Kafka has the thing."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from metadata_log.configuration import ConfigKey, ConfigSpec, Configuration, parse_endpoint
from metadata_log.features import LEAST_LEVEL, NEWEST_INTER_BROKER_PROTOCOL
from quorum.config import LOG_LEVEL
from quorum.config_file import read_toml
from quorum.security import Role, Security
from quorum.security_config import BROKER_SECURITY, check_security, configured_security

BROKER_ID: Final = ConfigKey(
    name="broker.id", type=int, at_least=0, at_most=2**31 - 1, doc="This broker's id."
)
LOG_DIR: Final = ConfigKey(name="log.dir", type=str, doc="Folder of the partition logs.")
QUORUM_BOOTSTRAP_SERVERS: Final = ConfigKey(
    name="quorum.bootstrap.servers",
    type=str,
    doc="gRPC addresses of the quorum's voters: host:port,host:port,…",
)
LISTENERS: Final = ConfigKey(
    name="listeners",
    type=str,
    default="PLAINTEXT://127.0.0.1:9092",
    doc="Where Kafka clients connect.",
)
ADVERTISED_LISTENERS: Final = ConfigKey(
    name="advertised.listeners",
    type=str,
    default="",
    doc="What clients are told to connect to; empty: the listener's own address.",
)
GRPC_LISTENER: Final = ConfigKey(
    name="grpc.listener",
    type=str,
    default="127.0.0.1:0",
    doc="Where peers, the controller, Spark and the quorate client connect; port 0: any free one.",
)
BROKER_RACK: Final = ConfigKey(
    name="broker.rack", type=str, default="", doc="Rack of this broker, for replica placement."
)
BROKER_SESSION_TIMEOUT_MS: Final = ConfigKey(
    name="broker.session.timeout.ms",
    type=int,
    default=6_000,
    at_least=200,
    doc="Silence after which the quorum declares this broker dead.",
)
QUORUM_CONNECT_TIMEOUT_MS: Final = ConfigKey(
    name="quorum.connect.timeout.ms",
    type=int,
    default=60_000,
    at_least=100,
    doc="How long a starting broker waits for the quorum before it gives up.",
)
REPLICA_LAG_TIME_MAX_MS: Final = ConfigKey(
    name="replica.lag.time.max.ms",
    type=int,
    default=30_000,
    at_least=1,
    doc="A follower that has not caught up for this long leaves the ISR (C13).",
)
REPLICA_FETCH_WAIT_MAX_MS: Final = ConfigKey(
    name="replica.fetch.wait.max.ms",
    type=int,
    default=500,
    at_least=0,
    doc="Long poll of a follower at its leader.",
)
REPLICA_FETCH_RESPONSE_MAX_BYTES: Final = ConfigKey(
    name="replica.fetch.response.max.bytes",
    type=int,
    default=2 << 20,
    at_least=1024,
    doc="Size of one replication frame; at least one batch is always sent.",
)
MIN_INSYNC_REPLICAS: Final = ConfigKey(
    name="min.insync.replicas",
    type=int,
    default=1,
    at_least=1,
    doc="Smallest ISR at which acks=all is accepted and the high watermark moves.",
)
MESSAGE_MAX_BYTES: Final = ConfigKey(
    name="message.max.bytes",
    type=int,
    default=8 << 20,
    at_least=0,
    doc="Largest record batch accepted.",
)
SOCKET_REQUEST_MAX_BYTES: Final = ConfigKey(
    name="socket.request.max.bytes",
    type=int,
    default=100 << 20,
    at_least=1024,
    doc="Largest Kafka request frame accepted; a larger one closes its connection.",
)
FETCH_MAX_BYTES: Final = ConfigKey(
    name="fetch.max.bytes",
    type=int,
    default=55 << 20,
    at_least=1024,
    doc="Largest fetch response, whatever the client asks for.",
)
NUM_PARTITIONS: Final = ConfigKey(
    name="num.partitions",
    type=int,
    default=1,
    at_least=1,
    doc="Partitions of a topic created without a number.",
)
DEFAULT_REPLICATION_FACTOR: Final = ConfigKey(
    name="default.replication.factor",
    type=int,
    default=1,
    at_least=1,
    doc="Replicas of a topic created without a number.",
)
AUTO_CREATE_TOPICS_ENABLE: Final = ConfigKey(
    name="auto.create.topics.enable",
    type=bool,
    default=True,
    doc="Create a topic when a client that allows it asks for its metadata.",
)
UNCLEAN_LEADER_ELECTION_ENABLE: Final = ConfigKey(
    name="unclean.leader.election.enable",
    type=bool,
    default=False,
    doc="Let a replica outside the ISR lead when nobody in it lives: loses data (C2).",
)
AUTO_LEADER_REBALANCE_ENABLE: Final = ConfigKey(
    name="auto.leader.rebalance.enable",
    type=bool,
    default=True,
    doc="Whether the controller gives leadership back to preferred replicas by itself.",
)
LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS: Final = ConfigKey(
    name="leader.imbalance.check.interval.seconds",
    type=int,
    default=300,
    at_least=1,
    doc="How often the controller looks for brokers that lead too few partitions.",
)
LEADER_IMBALANCE_PER_BROKER_PERCENTAGE: Final = ConfigKey(
    name="leader.imbalance.per.broker.percentage",
    type=int,
    default=10,
    at_least=0,
    doc="A broker leads too few once others lead more than this share of what prefers it.",
)
DELETE_TOPIC_ENABLE: Final = ConfigKey(
    name="delete.topic.enable", type=bool, default=True, doc="Whether topics can be deleted."
)
LOG_FLUSH: Final = ConfigKey(
    name="log.flush",
    type=str,
    default="sync",
    one_of=("sync", "os"),
    doc="sync: acknowledged = fsynced. os: left to the operating system, a power loss may lose it.",
)
LOG_SEGMENT_BYTES: Final = ConfigKey(
    name="log.segment.bytes",
    type=int,
    default=256 << 20,
    at_least=1 << 20,
    doc="Size at which a broker's segment environment is sealed and the next one begun.",
)
INTER_BROKER_PROTOCOL_VERSION: Final = ConfigKey(
    name="inter.broker.protocol.version",
    type=int,
    default=NEWEST_INTER_BROKER_PROTOCOL,
    at_least=LEAST_LEVEL,
    at_most=NEWEST_INTER_BROKER_PROTOCOL,
    doc="Highest inter_broker_protocol this broker may use; a new cluster begins at the highest "
    "that all brokers may use. In a running one it is raised with `quorate features upgrade`.",
)
CONTROL_REQUEST_TIMEOUT_MS: Final = ConfigKey(
    name="controller.socket.timeout.ms",
    type=int,
    default=30_000,
    at_least=100,
    doc="A control request unanswered for this long is retried and raised as an alert (C18).",
)
CONTROLLED_SHUTDOWN_TIMEOUT_MS: Final = ConfigKey(
    name="controlled.shutdown.timeout.ms",
    type=int,
    default=10_000,
    at_least=0,
    doc="How long a stopping broker waits for its leaderships to move; 0: not at all.",
)
LEADER_REPLICATION_THROTTLED_RATE: Final = ConfigKey(
    name="leader.replication.throttled.rate",
    type=int,
    default=2**63 - 1,
    at_least=0,
    doc="Bytes per second that this broker sends of throttled replicas that are not in sync.",
)
FOLLOWER_REPLICATION_THROTTLED_RATE: Final = ConfigKey(
    name="follower.replication.throttled.rate",
    type=int,
    default=2**63 - 1,
    at_least=0,
    doc="Bytes per second that this broker takes of throttled replicas that are not in sync.",
)

_DECLARED_HERE = [value for value in list(globals().values()) if isinstance(value, ConfigKey)]

BROKER_SPEC: Final = ConfigSpec("broker", [*_DECLARED_HERE, *BROKER_SECURITY, LOG_LEVEL])


def load_config(path: Path, overrides: Mapping[str, object]) -> Configuration:
    """The broker configuration in the TOML file at ``path``, with ``overrides`` on top.

    Raises:
        ConfigError: the file is missing or malformed, or a key or value is wrong.
    """
    config = BROKER_SPEC.parse({**read_toml(path), **overrides})
    key = QUORUM_BOOTSTRAP_SERVERS.name
    voters = [parse_endpoint(key, address) for address in quorum_addresses(config)]
    check_security(BROKER_SECURITY, config, key, voters)
    return config


def quorum_addresses(config: Configuration) -> list[str]:
    """gRPC addresses of voters, as configured."""
    return [address.strip() for address in config[QUORUM_BOOTSTRAP_SERVERS].split(",")]


def quorum_security(config: Configuration) -> Security | None:
    """This broker's certificates for the quorum, read and checked; None: plain text, on loopback.

    Raises:
        SecurityError: they cannot be used.
    """
    return configured_security(BROKER_SECURITY, config, Role.BROKER, config[BROKER_ID])
