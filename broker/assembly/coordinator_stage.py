"""The stage with the coordinators of a broker: those of groups, of the states of share-partitions,
and of transactions."""

from contextlib import AsyncExitStack
from uuid import UUID

from quorate.broker.assembly.shared_parts import SharedParts
from quorate.broker.config.internal_topics import (
    OFFSETS_TOPIC,
    SHARE_STATE_TOPIC,
    TRANSACTIONS_TOPIC,
)
from quorate.broker.control.controller_forwarder import ControllerForwarder
from quorate.broker.coordinator.groups.consumer_group_parts import ConsumerGroupParts
from quorate.broker.coordinator.groups.group_coordinator import GroupCoordinator, GroupSettings
from quorate.broker.coordinator.groups.shard_clock import ShardClock
from quorate.broker.coordinator.groups.share_group_parts import ShareGroupParts
from quorate.broker.coordinator.shards.coordinator_lease import CoordinatorLease
from quorate.broker.coordinator.shards.leadership_watcher import LeadershipWatcher
from quorate.broker.coordinator.share.dead_letters.dead_letter_peers import (
    DeadLetterLog,
    DeadLetterPeers,
)
from quorate.broker.coordinator.share.dead_letters.dead_letter_topics import DeadLetterTopics
from quorate.broker.coordinator.share.dead_letters.dead_letters import (
    DeadLetterParts,
    DeadLetters,
)
from quorate.broker.coordinator.share.led_share_partition import ShareLeaderParts
from quorate.broker.coordinator.share.share_coordinator import (
    ShareCoordinator,
    ShareCoordinatorSettings,
)
from quorate.broker.coordinator.share.share_leader import ShareLeader
from quorate.broker.coordinator.share.share_states import ShareStates
from quorate.broker.coordinator.transactions.marker_sender import MarkerSender
from quorate.broker.coordinator.transactions.producer_ids import ProducerIds
from quorate.broker.coordinator.transactions.transaction_coordinator import (
    APPEND_TIMEOUT_MS,
    TransactionCoordinator,
    TransactionSettings,
)
from quorate.broker.coordinator.transactions.transaction_peers import PeerMarkers, WatchedLeaders
from quorate.broker.replication.api import DeleteRecordsPartition
from quorate.broker.replication.manager import ReplicaManager
from quorate.common.types import ID_BYTES, TopicPartition


class CoordinatorStage:
    """The coordinators. They learn from ``replicas`` which of their partitions this broker
    leads."""

    def __init__(
        self, shared: SharedParts, replicas: ReplicaManager, forwarder: ControllerForwarder
    ) -> None:
        """Create the coordinators. ``open`` starts them."""
        config, environment, cache = shared.config, shared.environment, shared.cache
        self.producer_ids = ProducerIds(forwarder)
        self._replicas = replicas
        self.share_states = ShareCoordinator(
            ShareCoordinatorSettings.of(config),
            cache,
            cache.partition_count,
            environment.wall_clock_ms,
            self._delete_share_states,
        )
        self.states = ShareStates(
            identity=shared.identity,
            images=shared.images,
            channels=shared.channels,
            local=self.share_states,
            replicas=replicas,
            now_ms=environment.now_ms,
        )
        lease = CoordinatorLease(shared.identity, environment.now_ms, shared.quorum, shared.images)
        self.groups = GroupCoordinator(
            GroupSettings.of(config),
            ShardClock(lease.session_time_ms, environment.wall_clock_ms),
            cache.partition_count,
            lambda: str(UUID(bytes=environment.random_bytes(ID_BYTES))),
            ConsumerGroupParts.of(config, cache, shared.turns, shared.live.of_group),
            ShareGroupParts.of(shared.live, cache, shared.turns, self.states),
        )
        lease = CoordinatorLease(shared.identity, environment.now_ms, shared.quorum, shared.images)
        clock = ShardClock(environment.now_ms, environment.wall_clock_ms)
        self.dead_letter_log = DeadLetterLog(replicas, shared.live.of_topic)
        self.dead_letters = DeadLetters(
            DeadLetterParts(
                DeadLetterTopics(shared.live, shared.images, forwarder),
                replicas,
                DeadLetterPeers(
                    identity=shared.identity,
                    images=shared.images,
                    channels=shared.channels,
                    local=self.dead_letter_log,
                ),
                shared.turns,
                clock,
            )
        )
        self.share_leader = ShareLeader(
            ShareLeaderParts(shared.live, replicas, self.states, clock, lease, self.dead_letters)
        )
        self.markers = MarkerSender(
            WatchedLeaders(shared.images, shared.quorum),
            PeerMarkers(
                identity=shared.identity,
                images=shared.images,
                channels=shared.channels,
                local=replicas,
            ),
        )
        self.transactions = TransactionCoordinator(
            TransactionSettings.of(config),
            partition_count=cache.partition_count,
            markers=self.markers,
            producer_ids=self.producer_ids,
            wall_ms=environment.wall_clock_ms,
            transaction_version=lambda: shared.images.image.transaction_version,
        )
        shared.transaction_coordinator.fill(self.transactions)
        replicas.table.watch_leadership(
            OFFSETS_TOPIC,
            LeadershipWatcher(
                self.groups,
                replicas,
                lease,
                environment.wall_clock_ms,
                append_timeout_ms=self.groups.settings.commit_timeout_ms,
            ),
        )
        replicas.table.watch_leadership(
            TRANSACTIONS_TOPIC,
            LeadershipWatcher(
                self.transactions,
                replicas,
                lease,
                environment.wall_clock_ms,
                append_timeout_ms=APPEND_TIMEOUT_MS,
            ),
        )
        replicas.table.watch_leadership(
            SHARE_STATE_TOPIC,
            LeadershipWatcher(
                self.share_states,
                replicas,
                lease,
                environment.wall_clock_ms,
                append_timeout_ms=self.share_states.settings.write_timeout_ms,
            ),
        )
        cache.watch_removals(self.groups.partitions_gone)
        cache.watch_topics(self.groups.topics_changed)

    @classmethod
    def open(
        cls,
        shared: SharedParts,
        replicas: ReplicaManager,
        forwarder: ControllerForwarder,
        cleanup: AsyncExitStack,
    ) -> "CoordinatorStage":
        """Start the coordinators. This broker leads none of their partitions yet."""
        stage = cls(shared, replicas, forwarder)
        stage.groups.start()
        stage.share_states.start()
        stage.transactions.start()
        cleanup.push_async_callback(stage._close)
        return stage

    async def _close(self) -> None:
        """Close them. Waiting clients are told to look for other coordinators."""
        await self.transactions.close()
        self.share_leader.close()
        self.dead_letters.close()
        self.states.close()
        await self.share_states.close()
        self.markers.close()
        await self.groups.close()

    async def _delete_share_states(self, partition: int, offset: int) -> None:
        """Delete the records of a partition of __share_group_state before an offset."""
        tp = TopicPartition(SHARE_STATE_TOPIC, partition)
        wants = [DeleteRecordsPartition(tp, offset)]
        await self._replicas.delete_records(wants, self.share_states.settings.write_timeout_ms)
