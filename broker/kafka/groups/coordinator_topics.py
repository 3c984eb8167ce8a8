"""The internal topics of the coordinators. The controller creates each of them when a client first
requests a coordinator (F4).

Their replication factor is the configured one, but never above the number of live brokers, as in
Kafka until 0.11. Otherwise a cluster of one broker would never have a coordinator. If a large
cluster is started broker by broker while consumers wait, the factor can be raised later.
"""

import asyncio
from collections.abc import Mapping
from typing import Final, NamedTuple

from quorate.broker.common.errors import error_name
from quorate.broker.config.coordinator import (
    OFFSETS_TOPIC_NUM_PARTITIONS,
    OFFSETS_TOPIC_REPLICATION_FACTOR,
    TRANSACTION_STATE_LOG_MIN_ISR,
    TRANSACTION_STATE_LOG_NUM_PARTITIONS,
    TRANSACTION_STATE_LOG_REPLICATION_FACTOR,
)
from quorate.broker.config.internal_topics import (
    OFFSETS_TOPIC,
    SHARE_STATE_TOPIC,
    TRANSACTIONS_TOPIC,
)
from quorate.broker.config.share_groups import (
    SHARE_STATE_TOPIC_MIN_ISR,
    SHARE_STATE_TOPIC_NUM_PARTITIONS,
    SHARE_STATE_TOPIC_REPLICATION_FACTOR,
)
from quorate.broker.config.topic_keys import (
    TOPIC_CLEANUP_POLICY,
    TOPIC_MIN_INSYNC_REPLICAS,
    TOPIC_RETENTION_BYTES,
    TOPIC_RETENTION_MS,
    TOPIC_UNCLEAN_LEADER_ELECTION,
)
from quorate.broker.kafka.connection.requests import RequestContext
from quorate.broker.kafka.metadata.topic_auto_creation import TopicCreations
from quorate.broker.kafka.services import KafkaServices
from quorate.common.acl_types import ResourceType
from quorate.common.configuration import ConfigKey
from quorate_proto.v1 import admin_pb2, errors_pb2

CREATION_WAIT_S: Final = 5.0
"""The time for which a FindCoordinator request waits before it responds with
COORDINATOR_NOT_AVAILABLE. The creation continues, and clients try again.
"""

_METADATA_CHECK_INTERVAL_S: Final = 0.02
"""The interval between two checks of the metadata cache. It is short, because UpdateMetadata
closely follows the response of the controller.
"""


class CoordinatorKind(NamedTuple):
    """One kind of coordinator.

    ``what`` is the name of the objects that it coordinates. Each kind has its own resource type.
    ``min_isr`` is the min.insync.replicas of its topic, or None if the default of the cluster
    applies.
    """

    what: str
    resource_type: ResourceType
    denied: int
    topic: str
    partitions: ConfigKey[int]
    replication_factor: ConfigKey[int]
    min_isr: ConfigKey[int] | None = None
    cleanup_policy: str = "compact"


GROUPS: Final = 0
TRANSACTIONS: Final = 1
SHARES: Final = 2
COORDINATOR_KINDS: Final[Mapping[int, CoordinatorKind]] = {
    GROUPS: CoordinatorKind(
        "group",
        ResourceType.GROUP,
        errors_pb2.GROUP_AUTHORIZATION_FAILED,
        OFFSETS_TOPIC,
        OFFSETS_TOPIC_NUM_PARTITIONS,
        OFFSETS_TOPIC_REPLICATION_FACTOR,
    ),
    TRANSACTIONS: CoordinatorKind(
        "transactional id",
        ResourceType.TRANSACTIONAL_ID,
        errors_pb2.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        TRANSACTIONS_TOPIC,
        TRANSACTION_STATE_LOG_NUM_PARTITIONS,
        TRANSACTION_STATE_LOG_REPLICATION_FACTOR,
        TRANSACTION_STATE_LOG_MIN_ISR,
    ),
    SHARES: CoordinatorKind(
        "share-partition",
        ResourceType.CLUSTER,
        errors_pb2.CLUSTER_AUTHORIZATION_FAILED,
        SHARE_STATE_TOPIC,
        SHARE_STATE_TOPIC_NUM_PARTITIONS,
        SHARE_STATE_TOPIC_REPLICATION_FACTOR,
        SHARE_STATE_TOPIC_MIN_ISR,
        # The share coordinator deletes what later snapshots have made needless. Compaction would
        # keep only the last update of each share-partition.
        cleanup_policy="delete",
    ),
}
"""The kinds of coordinators, by the key type of FindCoordinator."""


class CoordinatorTopics:
    """Creates the internal topics of the coordinators when they are missing."""

    def __init__(self) -> None:
        self._creations = TopicCreations()

    async def create_if_missing(
        self, services: KafkaServices, context: RequestContext, key_type: int
    ) -> str | None:
        """Create the topic of the coordinator if it is missing. Return the reason why it is
        still missing, or None once this broker knows the topic.
        """
        kind = COORDINATOR_KINDS[key_type]
        if kind.topic in services.metadata.topics:
            return None
        creation = self._creations.begin(
            services.forwarder, context, "FindCoordinator", _new_topic(services, kind)
        )
        try:
            async with asyncio.timeout(CREATION_WAIT_S):
                code = await asyncio.shield(creation)
                while kind.topic not in services.metadata.topics:
                    if code not in (errors_pb2.NONE, errors_pb2.TOPIC_ALREADY_EXISTS):
                        return f"{kind.topic} cannot be created now: {error_name(code)}"
                    await asyncio.sleep(_METADATA_CHECK_INTERVAL_S)
        except TimeoutError:
            return f"{kind.topic} is being created: try again"
        return None


def _new_topic(services: KafkaServices, kind: CoordinatorKind) -> admin_pb2.NewTopic:
    live = max(1, len(services.metadata.brokers))
    replicas = min(services.config[kind.replication_factor], live)
    configs = {TOPIC_CLEANUP_POLICY.key.name: kind.cleanup_policy}
    if kind.cleanup_policy == "delete":
        configs |= {TOPIC_RETENTION_MS.key.name: "-1", TOPIC_RETENTION_BYTES.key.name: "-1"}
    if kind.min_isr is not None:
        # Decisions of the coordinator must not be lost, whatever the cluster's defaults are.
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
