"""Who this broker is, and how it finds the quorum."""

from typing import Final

from metadata_log.configuration import ConfigKey
from metadata_log.features import LEAST_LEVEL, NEWEST_INTER_BROKER_PROTOCOL

BROKER_ID: Final = ConfigKey(
    name="broker.id", type=int, at_least=0, at_most=2**31 - 1, doc="This broker's id."
)
BROKER_RACK: Final = ConfigKey(
    name="broker.rack", type=str, default="", doc="Rack of this broker, for replica placement."
)
QUORUM_BOOTSTRAP_SERVERS: Final = ConfigKey(
    name="quorum.bootstrap.servers",
    type=str,
    doc="gRPC addresses of the quorum's voters: host:port,host:port,…",
)
QUORUM_CONNECT_TIMEOUT_MS: Final = ConfigKey(
    name="quorum.connect.timeout.ms",
    type=int,
    default=60_000,
    at_least=100,
    doc="How long a starting broker waits for the quorum before it gives up.",
)
BROKER_SESSION_TIMEOUT_MS: Final = ConfigKey(
    name="broker.session.timeout.ms",
    type=int,
    default=6_000,
    at_least=200,
    doc="Silence after which the quorum declares this broker dead.",
)
CONTROLLED_SHUTDOWN_TIMEOUT_MS: Final = ConfigKey(
    name="controlled.shutdown.timeout.ms",
    type=int,
    default=10_000,
    at_least=0,
    doc="How long a stopping broker waits for its leaderships to move; 0: not at all.",
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
