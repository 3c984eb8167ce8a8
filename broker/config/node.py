"""The keys of a broker's identity and of its quorum."""

from typing import Final

from quorate.common.configuration import ConfigKey
from quorate.common.scheduling import SchedulingPolicy
from quorate.metadata_log.features import NEWEST_INTER_BROKER_PROTOCOL
from quorate.metadata_log.image import LEAST_LEVEL

BROKER_ID: Final = ConfigKey(
    name="broker.id", type=int, at_least=0, at_most=2**31 - 1, doc="The id of this broker."
)
BROKER_RACK: Final = ConfigKey(
    name="broker.rack",
    type=str,
    default="",
    doc="The rack of this broker. Replicas of a partition are spread over racks.",
)
QUORUM_BOOTSTRAP_SERVERS: Final = ConfigKey(
    name="quorum.bootstrap.servers",
    type=str,
    doc="The gRPC addresses of the quorum's voters: host:port,host:port,…",
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
    doc="The quorum declares this broker dead after it has heard nothing from it for this long.",
)
CONTROLLED_SHUTDOWN_TIMEOUT_MS: Final = ConfigKey(
    name="controlled.shutdown.timeout.ms",
    type=int,
    default=10_000,
    at_least=0,
    doc="How long a stopping broker waits for its leaderships to move to other brokers. 0 means "
    "that it does not wait.",
)
SCHEDULING_POLICY: Final = ConfigKey(
    name="scheduling.policy",
    type=str,
    default=SchedulingPolicy.BATCH.value,
    one_of=tuple(policy.value for policy in SchedulingPolicy),
    doc="What happens when something arrives for the broker while all processors are busy. With "
    "batch it waits for a processor, and then does together what has arrived meanwhile, so many "
    "producers of a saturated machine write more. With normal it interrupts what runs, which is "
    "better for latency beside processes that compute all the time, whatever their priority. While "
    "a processor is free there is hardly any difference. A policy that the process was started "
    "with, other than the system's default, stays. Linux only.",
)
INTER_BROKER_PROTOCOL_VERSION: Final = ConfigKey(
    name="inter.broker.protocol.version",
    type=int,
    default=NEWEST_INTER_BROKER_PROTOCOL,
    at_least=LEAST_LEVEL,
    at_most=NEWEST_INTER_BROKER_PROTOCOL,
    doc="The highest inter_broker_protocol that this broker may use. A new cluster begins at the "
    "highest that all brokers may use. In a running cluster it is raised with `quorate "
    "features upgrade`.",
)
