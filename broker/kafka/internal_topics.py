"""The topics of coordinators, created by the controller when somebody first looks for one (F4).

Their replication factor is what is configured, but never above the number of live brokers: as
Kafka did until 0.11, since a cluster of one would otherwise have no coordinator for ever. Who
starts a large cluster broker by broker, and has consumers wait for it, can raise the factor later.
"""

import asyncio
from collections.abc import Mapping
from typing import Final, NamedTuple

from broker.config.coordinator import (
    OFFSETS_TOPIC_NUM_PARTITIONS,
    OFFSETS_TOPIC_REPLICATION_FACTOR,
    TRANSACTION_STATE_LOG_MIN_ISR,
    TRANSACTION_STATE_LOG_NUM_PARTITIONS,
    TRANSACTION_STATE_LOG_REPLICATION_FACTOR,
)
from broker.coordinator.topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from broker.errors import error_name
from broker.kafka.auto_create import Creations
from broker.kafka.requests import RequestContext
from broker.kafka.services import KafkaServices
from broker.topic_config import (
    TOPIC_CLEANUP_POLICY,
    TOPIC_MIN_INSYNC_REPLICAS,
    TOPIC_UNCLEAN_LEADER_ELECTION,
)
from metadata_log.acls import ResourceType
from metadata_log.configuration import ConfigKey
from quorate_proto.v1 import admin_pb2, errors_pb2

PATIENCE_S: Final = 5.0
"""How long a FindCoordinator waits before it says COORDINATOR_NOT_AVAILABLE; the creation goes on.
Clients ask again, and wait for the answer themselves."""

_LOOK_INTERVAL_S: Final = 0.02
"""UpdateMetadata follows the controller's answer closely."""


class Kind(NamedTuple):
    """One of the coordinators. ``what`` it coordinates, each with rights of its own.

    ``min_isr``: of its topic, where that is not left to the cluster's default.
    """

    what: str
    resource_type: ResourceType
    denied: int
    topic: str
    partitions: ConfigKey[int]
    replication_factor: ConfigKey[int]
    min_isr: ConfigKey[int] | None = None


GROUPS: Final = 0
TRANSACTIONS: Final = 1
KINDS: Final[Mapping[int, Kind]] = {
    GROUPS: Kind(
        "group",
        ResourceType.GROUP,
        errors_pb2.GROUP_AUTHORIZATION_FAILED,
        OFFSETS_TOPIC,
        OFFSETS_TOPIC_NUM_PARTITIONS,
        OFFSETS_TOPIC_REPLICATION_FACTOR,
    ),
    TRANSACTIONS: Kind(
        "transactional id",
        ResourceType.TRANSACTIONAL_ID,
        errors_pb2.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        TRANSACTIONS_TOPIC,
        TRANSACTION_STATE_LOG_NUM_PARTITIONS,
        TRANSACTION_STATE_LOG_REPLICATION_FACTOR,
        TRANSACTION_STATE_LOG_MIN_ISR,
    ),
}
"""By FindCoordinator's key type."""


class InternalTopics:
    """Those that are being created for clients of one listener."""

    def __init__(self) -> None:
        self._creations = Creations()

    async def why_missing(
        self, services: KafkaServices, context: RequestContext, key_type: int
    ) -> str | None:
        """Create the coordinator's topic unless it is there; None: it is, and is known here."""
        kind = KINDS[key_type]
        if kind.topic in services.metadata.topics:
            return None
        creation = self._creations.begin(
            services.forwarder, context, "FindCoordinator", _new_topic(services, kind)
        )
        try:
            async with asyncio.timeout(PATIENCE_S):
                code = await asyncio.shield(creation)
                while kind.topic not in services.metadata.topics:
                    if code not in (errors_pb2.NONE, errors_pb2.TOPIC_ALREADY_EXISTS):
                        return f"{kind.topic} cannot be created now: {error_name(code)}"
                    await asyncio.sleep(_LOOK_INTERVAL_S)
        except TimeoutError:
            return f"{kind.topic} is being created: try again"
        return None


def _new_topic(services: KafkaServices, kind: Kind) -> admin_pb2.NewTopic:
    live = max(1, len(services.metadata.brokers))
    replicas = min(services.config[kind.replication_factor], live)
    configs = {TOPIC_CLEANUP_POLICY.key.name: "compact"}
    if kind.min_isr is not None:
        # What was decided must not be lost, whatever the cluster's defaults are.
        configs[TOPIC_MIN_INSYNC_REPLICAS.key.name] = str(
            min(services.config[kind.min_isr], replicas)
        )
        configs[TOPIC_UNCLEAN_LEADER_ELECTION.key.name] = "false"
    return admin_pb2.NewTopic(
        name=kind.topic,
        num_partitions=services.config[kind.partitions],
        replication_factor=replicas,
        configs=configs,
    )
