"""Control commands: lead, follow, stop (C6, C7, C8, C10, C17). ``control`` has fenced them.

One command is carried out at a time. Within it, a partition leaves its fetcher before anything else
happens to the partition, so that no append of an old leader can follow.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence, Set
from itertools import islice
from typing import Final, TypeVar

from quorate.broker.common.errors import KafkaError
from quorate.broker.replication.commands.stray_partitions import (
    AssignmentCheck,
    StrayPartitions,
    names_of,
)
from quorate.broker.replication.fetching.replica_fetcher_manager import ReplicaFetcherManager
from quorate.broker.replication.hosting.hosted_partition import HostedPartition
from quorate.broker.replication.hosting.partition_table import PartitionTable
from quorate.broker.replication.pace import Pace
from quorate.broker.replication.partition.leader_and_isr import LeaderAndIsr
from quorate.common.types import NO_BROKER, BrokerId, LeaderEpoch, TopicId, TopicIdPartition
from quorate.metadata_log.codec import decode_endpoint
from quorate.metadata_log.image import Image
from quorate.metadata_log.partitions import Topic
from quorate_proto.v1 import control_pb2, errors_pb2

log = logging.getLogger(__name__)

DELETION_EPOCH: Final = -2
"""The leader epoch of a StopReplica that deletes a topic. It outranks every other (C8)."""

T = TypeVar("T")

NO_EPOCH_CHECK: Final = -1
NEVER_AGAIN: Final = LeaderEpoch((1 << 31) - 1)
TOMBSTONES_MAX: Final = 100_000

SEEN_IN_A_ROW: Final = 20_000
"""The number of partitions of an image that are looked at before other tasks have their turn."""

DELETED_TOGETHER: Final = 1_000
"""The number of replicas whose logs one transaction deletes."""


class ControlCommands:
    """Carries out commands on the partition table and the fetchers."""

    def __init__(
        self,
        table: PartitionTable,
        fetchers: ReplicaFetcherManager,
        assignments: AssignmentCheck,
    ) -> None:
        self._table = table
        self._fetchers = fetchers
        self._turn = asyncio.Lock()
        self._strays = StrayPartitions(table, assignments, self._delete_strays)
        self._deleted: dict[TopicIdPartition, LeaderEpoch] = {}
        self._pace = Pace()

    def strays(self) -> Sequence[HostedPartition]:
        """Return the partitions that the quorum does not know, which an operator decides about."""
        return self._strays.kept()

    async def close(self) -> None:
        """Stop the check of stray partitions."""
        await self._strays.close()

    # -- LeaderAndIsr ----------------------------------------------------------------------------

    async def apply_leader_and_isr(
        self, request: control_pb2.LeaderAndIsrRequest
    ) -> list[control_pb2.PartitionOutcome]:
        """Lead or follow as newer records say; set aside what an INIT leaves out (C7)."""
        offset = request.header.metadata_offset
        async with self._turn, self._fetchers.without_questions():
            for broker in request.brokers:
                self._learn_peer(broker)
            outcomes = []
            for topic in request.topics:
                for told in topic.partitions:
                    await self._pace.step()
                    tip = TopicIdPartition(TopicId(topic.topic_id), told.partition)
                    code = await self._discard_former(tip, told.removed_at)
                    if code == errors_pb2.NONE:
                        code = await self._lead_or_follow(
                            tip, topic.topic, LeaderAndIsr.of_request(told), offset
                        )
                    outcomes.append(_outcome(topic.topic, told.partition, code))
            if request.is_init:
                listed = {
                    TopicIdPartition(TopicId(topic.topic_id), told.partition)
                    for topic in request.topics
                    for told in topic.partitions
                }
                self._set_aside_unlisted(listed, offset)
        return outcomes

    async def apply_init(self, image: Image) -> list[control_pb2.PartitionOutcome]:
        """Lead or follow as an INIT says whose content is ``image``; set aside the rest (C7).

        Return the outcomes of the partitions that failed.
        """
        failed = []
        assigned: set[TopicIdPartition] = set()
        async with self._turn, self._fetchers.without_questions():
            self._learn_peers(image)
            async for topic, number in self._assigned(image):
                tip = TopicIdPartition(topic.topic_id, number)
                assigned.add(tip)
                code = await self._discard_former(tip, topic.removed_at(number))
                if code == errors_pb2.NONE:
                    told = LeaderAndIsr.in_image(image, topic, number)
                    code = await self._lead_or_follow(tip, topic.name, told, image.offset)
                if code != errors_pb2.NONE:
                    failed.append(_outcome(topic.name, number, code))
            self._set_aside_unlisted(assigned, image.offset)
        return failed

    async def adopt_image(
        self, image: Image, *, log_may_be_lost: bool, lost: Set[TopicIdPartition]
    ) -> None:
        """Start what the image assigns to this broker, set aside what it does not (C10).

        A partition that is being deleted is not started: its data may be gone already.
        Leadership is taken up only if the log is surely whole (rule 8).
        """
        own = self._table.broker_id
        assigned: set[TopicIdPartition] = set()
        async with self._turn, self._fetchers.without_questions():
            self._learn_peers(image)
            async for topic, number in self._assigned(image):
                tip = TopicIdPartition(topic.topic_id, number)
                assigned.add(tip)
                if await self._discard_former(tip, topic.removed_at(number)):
                    continue
                told = LeaderAndIsr.in_image(image, topic, number)
                if told.leader == own and (log_may_be_lost or tip in lost):
                    self._table.host(tip, topic.name, image.offset)
                else:
                    await self._lead_or_follow(tip, topic.name, told, image.offset, resumes=True)
            self._set_aside_unlisted(assigned, image.offset)

    def _learn_peers(self, image: Image) -> None:
        for broker in image.brokers.values():
            self._fetchers.learn_endpoint(broker.broker_id, broker.inter_broker)

    async def _assigned(self, image: Image) -> AsyncIterator[tuple[Topic, int]]:
        """Yield the partitions that ``image`` assigns to this broker, with pauses.

        Those that are being deleted or removed are left out.
        """
        own, seen = self._table.broker_id, 0
        for topic in image.topics.values():
            seen += len(topic.partitions)
            if seen >= SEEN_IN_A_ROW:
                seen = 0
                await asyncio.sleep(0)
            for number, leaf in enumerate(topic.partitions[: image.kept(topic)]):
                if own in leaf.replicas:
                    await self._pace.step()
                    yield topic, number

    async def _discard_former(self, tip: TopicIdPartition, removed_at: int) -> int:
        """Delete the log of an earlier partition of this number whose removal this broker missed.

        It has the same topic id, but it must not be taken for a part of the new one (C14, rule 7).
        ``removed_at`` is 0 if there was none. Returns a Kafka error code.
        """
        if not removed_at:
            return errors_pb2.NONE
        former = self._table.store.logs.get(tip)
        if former is None or former.assigned_at >= removed_at:
            return errors_pb2.NONE
        hosted = self._table.host(tip, former.topic)
        log.info(
            "%s was removed at offset %d and added again: deleting the log assigned at %d",
            hosted.tp,
            removed_at,
            former.assigned_at,
        )
        self._stop(hosted, delete=True)
        return await self._delete([hosted])

    async def _lead_or_follow(
        self,
        tip: TopicIdPartition,
        topic: str,
        told: LeaderAndIsr,
        metadata_offset: int,
        *,
        resumes: bool = False,
    ) -> int:
        """Carry out the command for one partition, and return a Kafka error code.

        ``resumes`` says that an earlier incarnation of this broker may have led in this epoch.
        """
        own = self._table.broker_id
        if own not in told.replicas:
            log.error(
                "told of %s-%d, whose replicas %s leave this broker out",
                topic,
                tip.partition,
                told.replicas,
            )
            return errors_pb2.INVALID_REQUEST
        if told.leader_epoch <= self._deleted.get(tip, NO_EPOCH_CHECK):
            return errors_pb2.UNKNOWN_TOPIC_OR_PARTITION
        try:
            hosted = self._table.host(tip, topic, metadata_offset)
        except KafkaError as error:
            log.error("cannot host %s-%d: %s", topic, tip.partition, error)
            return error.code
        self._strays.reclaim(hosted)
        hosted.note_metadata_offset(metadata_offset)
        if hosted.log.is_offline:
            return errors_pb2.KAFKA_STORAGE_ERROR
        if not hosted.replica.is_newer(told):
            return errors_pb2.NONE
        if hosted.replica.continues(told):
            self._table.run(hosted, hosted.replica.learn(told, self._table.clock.now_ms()))
            if told.leader == own:
                self._table.expect_followers(hosted)
            return errors_pb2.NONE
        if hosted.broken and told.leader == own:
            log.error("cannot lead %s: %s", hosted.tp, hosted.broken)
            return errors_pb2.KAFKA_STORAGE_ERROR
        self._fetchers.unfollow(hosted)
        async with hosted.truncation:
            if told.leader == own:
                self._lead(hosted, told, resumes=resumes)
            else:
                self._follow(hosted, told)
        hosted.leadership_changed()
        return errors_pb2.NONE

    def _lead(self, hosted: HostedPartition, told: LeaderAndIsr, *, resumes: bool) -> None:
        """Lead from the log end on, where the epoch begins unless it began before a restart.

        After a restart, too, what is committed may reach to the log end, and the checkpointed high
        watermark trails it.
        """
        replica, led_from = hosted.replica, hosted.log.log_end_offset
        hosted.log.leader_epochs.assign(told.leader_epoch, led_from)
        self._table.refresh_limits(hosted)
        effects = replica.become_leader(
            told,
            led_from_offset=led_from,
            flushed_offset=hosted.log.flushed_offset,
            now_ms=self._table.clock.now_ms(),
            resumes=resumes,
        )
        self._table.run(hosted, effects)
        self._table.expect_followers(hosted)

    def _follow(self, hosted: HostedPartition, told: LeaderAndIsr) -> None:
        """Follow the leader. A damaged log is fetched again in an epoch whose ISR leaves it out.

        A replica that broke an invariant is fetched in no other way.
        """
        self._table.run(hosted, hosted.replica.become_follower(told))
        afresh = hosted.is_damaged and self._table.broker_id not in told.isr
        if told.leader != NO_BROKER and (afresh or not hosted.broken):
            self._fetchers.follow(hosted, afresh=afresh)

    async def replace_log(
        self, hosted: HostedPartition, image: Image, finish: Callable[[], Awaitable[None]]
    ) -> bool:
        """Go on with another log of the same replica, which ``finish`` puts in place (KIP-113).

        Nobody reads or appends meanwhile: producers and consumers ask again. Return False, with
        nothing done, if ``image`` does not have the leadership that the replica knows.

        Raises:
            KafkaError, OSError: ``finish`` failed. The replica goes on with the log that counts.
        """
        async with self._turn:
            topic = image.topic_by_id(hosted.tip.topic_id)
            if topic is None or self._table.get(hosted.tip) is not hosted:
                return False
            told = LeaderAndIsr.in_image(image, topic, hosted.tip.partition)
            if hosted.replica.is_idle or not hosted.replica.is_at(told):
                return False
            self._stop(hosted, delete=False)
            async with hosted.truncation:
                try:
                    await finish()
                finally:
                    self._stop(hosted, delete=True)
                    await self._lead_or_follow(
                        hosted.tip, topic.name, told, image.offset, resumes=True
                    )
            return True

    def _learn_peer(self, broker: control_pb2.PeerBroker) -> None:
        known = broker.inter_broker if broker.HasField("inter_broker") else broker.grpc
        endpoint = decode_endpoint(known)
        self._fetchers.learn_endpoint(BrokerId(broker.broker_id), endpoint)

    def _set_aside_unlisted(self, listed: set[TopicIdPartition], metadata_offset: int) -> None:
        """Set aside what is not listed, unless a newer command than this list named it."""
        unlisted = [
            hosted
            for hosted in self._table
            if hosted.tip not in listed and hosted.metadata_offset <= metadata_offset
        ]
        for hosted in unlisted:
            self._fetchers.unfollow(hosted)
        self._strays.set_aside(unlisted)

    # -- StopReplica -----------------------------------------------------------------------------

    async def stop_replicas(
        self, request: control_pb2.StopReplicaRequest
    ) -> list[control_pb2.PartitionOutcome]:
        """Stop fetching, leading and checkpointing; delete the data if told so (C8)."""
        codes: list[int] = []
        doomed: dict[int, HostedPartition] = {}  # By position in the request.
        async with self._turn:
            for position, told in enumerate(request.partitions):
                await self._pace.step()
                tip = TopicIdPartition(TopicId(told.topic_id), told.partition)
                hosted = self._table.get(tip)
                codes.append(self._refusal_to_stop(told, hosted))
                if codes[-1] != errors_pb2.NONE:
                    continue
                if told.delete_data:
                    self._remember_deletion(tip, told.leader_epoch)
                if hosted is not None:
                    self._stop(hosted, delete=told.delete_data)
                    if told.delete_data:
                        doomed[position] = hosted
            for positions in batched(doomed, DELETED_TOGETHER):
                code = await self._delete([doomed[position] for position in positions])
                for position in positions:
                    codes[position] = code
        return [
            _outcome(told.topic, told.partition, code)
            for told, code in zip(request.partitions, codes, strict=True)
        ]

    @staticmethod
    def _refusal_to_stop(told: control_pb2.StoppedPartition, hosted: HostedPartition | None) -> int:
        known = NO_EPOCH_CHECK if hosted is None else hosted.replica.leader_epoch
        if told.leader_epoch >= 0 and told.leader_epoch < known:
            return errors_pb2.FENCED_LEADER_EPOCH
        return errors_pb2.NONE

    def _stop(self, hosted: HostedPartition, *, delete: bool) -> None:
        """Serve nobody from now on; with ``delete``, forget the partition too."""
        self._strays.reclaim(hosted)
        self._fetchers.unfollow(hosted)
        self._table.run(hosted, hosted.replica.stop())
        hosted.leadership_changed()
        if delete:
            self._table.drop(hosted)

    async def _delete(self, stopped: Sequence[HostedPartition]) -> int:
        """Delete the logs of replicas that were stopped; return one Kafka error code for all.

        Nobody begins to truncate the log of a partition that is not followed, so it is enough to
        wait for the truncations that have begun.
        """
        for hosted in stopped:
            if hosted.truncation.locked():
                async with hosted.truncation:
                    pass
        names = names_of(stopped)
        try:
            await self._table.store.delete(*(hosted.tip for hosted in stopped))
        except KafkaError as error:
            log.error("cannot delete %s: %s", names, error)
            return error.code
        log.info("deleted the replicas of %s", names)
        return errors_pb2.NONE

    async def _delete_strays(self, strays: Sequence[HostedPartition]) -> None:
        async with self._turn:
            doomed = []
            for hosted in strays:
                await self._pace.step()
                if self._table.get(hosted.tip) is hosted and hosted.replica.is_idle:
                    self._stop(hosted, delete=True)
                    doomed.append(hosted)
            if doomed:
                await self._delete(doomed)

    def _remember_deletion(self, tip: TopicIdPartition, leader_epoch: int) -> None:
        """Remember the deletion: a late command must not bring the replica back."""
        epoch = NEVER_AGAIN if leader_epoch == DELETION_EPOCH else LeaderEpoch(leader_epoch)
        self._deleted[tip] = max(epoch, self._deleted.get(tip, epoch))
        if len(self._deleted) > TOMBSTONES_MAX:
            # A tenth at a time: taking single keys off the front of a dictionary gets ever slower.
            for oldest in tuple(islice(self._deleted, TOMBSTONES_MAX // 10)):
                del self._deleted[oldest]


def batched(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Return the items in order, ``size`` at a time."""
    left = iter(items)
    while batch := list(islice(left, size)):
        yield batch


def _outcome(topic: str, partition: int, code: int) -> control_pb2.PartitionOutcome:
    return control_pb2.PartitionOutcome(topic=topic, partition=partition, error_code=code)
