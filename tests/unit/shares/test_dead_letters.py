"""``DeadLetters`` over logs in memory: what is written, what is tried again, and what is given up
(KIP-1191)."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from quorate.broker.common.errors import KafkaError
from quorate.broker.config.share_groups import DEAD_LETTER_TOPIC_NAME_PREFIX
from quorate.broker.config.topic_keys import TOPIC_DEAD_LETTERS_ENABLE, TopicKey
from quorate.broker.coordinator.groups.shard_clock import ShardClock
from quorate.broker.coordinator.share.dead_letters import dead_letters
from quorate.broker.coordinator.share.dead_letters.dead_letter_batch import (
    BATCH_BYTES,
    Content,
    Source,
)
from quorate.broker.coordinator.share.dead_letters.dead_letter_peers import (
    DeadLetterLog,
    DeadLetterPeers,
    DeadLetterWrite,
)
from quorate.broker.coordinator.share.dead_letters.dead_letter_topics import DeadLetterTopics
from quorate.broker.coordinator.share.dead_letters.dead_letters import (
    GIVE_UP_MS,
    PATIENCE_MS,
    SHORT_PATIENCE_MS,
    DeadLetterParts,
    DeadLetters,
)
from quorate.broker.coordinator.share.dead_letters.source_records import (
    SourceRecords,
    decoded,
    read_source,
)
from quorate.broker.coordinator.share.share_reads import found_batches
from quorate.broker.coordinator.share.state.dead_records import DeadRecords, DeathReason
from quorate.broker.quota.work_turns import WorkTurns
from quorate.broker.replication.api import DeleteRecordsPartition
from quorate.broker.replication.manager import ReplicaManager
from quorate.common.configuration import ConfigKey, T
from quorate.common.types import BrokerId, TopicPartition
from quorate_proto.v1 import admin_pb2, errors_pb2
from tests.support.broker_replicas import BrokerReplicas
from tests.support.metadata import topic_id_of
from tests.support.replica_cluster import batch
from tests.support.share_fakes import FakeGroupConfig
from tests.support.virtual_time import pass_time

TOPIC = "dlq.jobs"
SOURCE = Source("workers", TopicPartition("jobs", 0), topic_id_of("jobs"), 0)


class Config(FakeGroupConfig):
    """Every topic takes dead letters unless it is told not to."""

    takes = True

    def __getitem__(self, key: ConfigKey[T]) -> T:
        return key.parse(self.own.get(key.name, key.default))

    def of_topic(self, topic: str, topic_key: TopicKey[T]) -> T:
        key = topic_key.key
        return key.parse(
            self.takes if key.name == TOPIC_DEAD_LETTERS_ENABLE.key.name else key.default
        )


class FlushedLog(DeadLetterLog):
    """Whatever is appended is durable at once."""

    def __init__(self, broker: BrokerReplicas, config: Config) -> None:
        super().__init__(broker.manager, config.of_topic)
        self._store = broker.store
        self.refuses = False
        self.takes_s = 0.0

    async def write(self, writes: Sequence[DeadLetterWrite]) -> list[int]:
        if self.refuses:
            return [errors_pb2.TOPIC_AUTHORIZATION_FAILED] * len(writes)
        await pass_time(self.takes_s)
        writing = asyncio.create_task(super().write(writes))
        await asyncio.sleep(0)
        self._store.flush()
        return await writing


class World:
    """A broker that leads ``jobs`` and its dead letter topic."""

    def __init__(self, broker: BrokerReplicas) -> None:
        self.broker = broker
        self.config = Config(errors_deadletterqueue_topic_name=TOPIC)
        topic = SimpleNamespace(
            topic_id=topic_id_of(TOPIC), partitions=(SimpleNamespace(leader=BrokerId(1)),)
        )
        self.image = SimpleNamespace(topics={TOPIC: topic}, brokers={})
        self.created: list[admin_pb2.CreateTopicsRequest] = []
        images, clock = cast("Any", SimpleNamespace(image=self.image)), self._now_ms
        self.log = FlushedLog(broker, self.config)
        peers = DeadLetterPeers(
            identity=broker.identity, images=images, channels=cast("Any", None), local=self.log
        )
        topics = DeadLetterTopics(self.config, images, cast("Any", self))
        self.letters = DeadLetters(
            DeadLetterParts(topics, broker.manager, peers, WorkTurns(), ShardClock(clock, clock))
        )

    @staticmethod
    def _now_ms() -> int:
        return int(asyncio.get_running_loop().time() * 1000)

    async def forward(
        self, change: object, request: admin_pb2.CreateTopicsRequest
    ) -> admin_pb2.CreateTopicsResponse:
        """Create a topic, as the controller."""
        self.created.append(request)
        return admin_pb2.CreateTopicsResponse(topics=[admin_pb2.TopicResult()])

    async def bury(self, first: int, last: int) -> None:
        await self.letters.write(SOURCE, [DeadRecords(first, last, 1, DeathReason.REJECTED)])

    async def written(self) -> list[Content]:
        outcome = await self.broker.fetch(TOPIC, 0)
        return list(decoded(outcome.chunks, 0, 1 << 20).contents.values())

    def missed(self) -> dict[str, int]:
        return dict(self.letters.figures.missed)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    broker = await BrokerReplicas().start()
    await broker.lead("jobs", isr=(1,), replicas=(1,))
    await broker.lead(TOPIC, isr=(1,), replicas=(1,))
    world = World(broker)
    yield world
    world.letters.close()
    await broker.close()


def offsets(letters: list[Content]) -> list[int]:
    return [int(dict(letter.headers)[b"__dlq.errors.offset"] or b"") for letter in letters]


async def test_kip_1191_each_dead_record_has_a_letter(world: World) -> None:
    await world.bury(3, 5)
    letters = await world.written()
    assert offsets(letters) == [3, 4, 5]
    assert {letter.value for letter in letters} == {None}
    assert (world.letters.figures.written, world.letters.figures.waiting) == (3, 0)


async def test_kip_1191_letters_copy_records_if_the_group_wants_it(world: World) -> None:
    world.config.own["errors.deadletterqueue.copy.record.enable"] = "true"
    await world.broker.produce("jobs", batch("a", "b"), acks=0)
    await world.broker.produce("jobs", batch("c", "d"), acks=0)
    world.broker.store.flush()
    await world.bury(1, 4)
    letters = await world.written()
    assert offsets(letters) == [1, 2, 3, 4]
    assert [letter.value for letter in letters] == [b"b", b"c", b"d", None]


async def test_kip_1191_what_the_log_still_has_is_copied_though_it_begins_later_now(
    world: World,
) -> None:
    world.config.own["errors.deadletterqueue.copy.record.enable"] = "true"
    await world.broker.produce("jobs", batch("a", "b", "c", "d"), acks=0)
    world.broker.store.flush()
    await world.broker.manager.delete_records([DeleteRecordsPartition(SOURCE.tp, 2)], 1_000)
    await world.bury(0, 3)
    assert [letter.value for letter in await world.written()] == [None, None, b"c", b"d"]


async def test_kip_1191_without_a_topic_nothing_is_written(world: World) -> None:
    world.config.own.clear()
    assert not world.letters.are_on(SOURCE)
    await world.bury(0, 9)
    assert await world.written() == []
    assert not world.missed()


async def test_kip_1191_a_dead_letter_topic_has_no_dead_letters_of_its_own(world: World) -> None:
    assert world.letters.are_on(SOURCE)
    assert not world.letters.are_on(SOURCE._replace(tp=TopicPartition(TOPIC, 0)))


async def test_kip_1191_a_misconfigured_topic_is_given_up_at_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.config.own[DEAD_LETTER_TOPIC_NAME_PREFIX.name] = "dead-"
    await world.bury(0, 9)
    await world.bury(10, 10)
    assert world.missed() == {"configuration": 11}
    (line,) = caplog.messages
    assert "10 records of jobs-0, offsets 0 to 9" in line
    assert "does not begin with 'dead-'" in line
    assert asyncio.get_running_loop().time() < 1


async def test_kip_1191_a_leader_takes_dead_letters_only_for_topics_that_allow_it(
    world: World,
) -> None:
    world.config.takes = False
    write = DeadLetterWrite(TopicPartition(TOPIC, 0), topic_id_of(TOPIC), batch("a"))
    assert await world.log.write([write]) == [errors_pb2.TOPIC_AUTHORIZATION_FAILED]
    assert await world.written() == []


async def test_kip_1191_an_absent_topic_is_created(world: World) -> None:
    world.config.own["errors.deadletterqueue.auto.create.topics.enable"] = "true"
    topic = world.image.topics.pop(TOPIC)
    burying = [asyncio.create_task(world.bury(at, at)) for at in (0, 1)]
    await pass_time(0.5)
    assert not any(task.done() for task in burying)
    world.image.topics[TOPIC] = topic
    await asyncio.gather(*burying)
    (request,) = world.created
    assert request.topics[0].name == TOPIC
    assert request.topics[0].configs["errors.deadletterqueue.group.enable"] == "true"
    assert len(await world.written()) == 2


async def test_kip_1191_what_fails_is_tried_again(world: World) -> None:
    await world.broker.command(TOPIC, leader=2, epoch=1, version=1)
    burying = asyncio.create_task(world.bury(0, 0))
    await pass_time(1.0)
    assert not burying.done()
    await world.broker.lead(TOPIC, isr=(1,), replicas=(1,), epoch=2, version=2)
    await burying
    assert offsets(await world.written()) == [0]


async def test_kip_1191_records_stay_while_the_topic_is_unavailable(world: World) -> None:
    world.image.topics[TOPIC].partitions[0].leader = BrokerId(-1)
    with pytest.raises(KafkaError) as refused:
        await world.bury(0, 0)
    assert refused.value.code == errors_pb2.COORDINATOR_NOT_AVAILABLE
    assert asyncio.get_running_loop().time() * 1000 == PATIENCE_MS
    assert not world.missed()
    assert world.letters.figures.waiting == 0


async def test_kip_1191_a_topic_is_given_up_after_a_while_and_trusted_again(world: World) -> None:
    partition = world.image.topics[TOPIC].partitions[0]
    partition.leader = BrokerId(-1)
    await be_given_up(world)
    before_ms = world._now_ms()
    await world.bury(1, 2)
    assert world.missed() == {"unavailable": 3}
    assert world._now_ms() - before_ms == SHORT_PATIENCE_MS
    partition.leader = BrokerId(1)
    await world.bury(3, 3)
    assert offsets(await world.written()) == [3]
    partition.leader = BrokerId(-1)
    with pytest.raises(KafkaError):
        await world.bury(4, 4)


async def be_given_up(world: World) -> None:
    """Have the topic fail for so long that a record leaves without a dead letter."""
    tries = 0
    while not world.missed():
        tries += 1
        try:
            await world.bury(0, 0)
        except KafkaError:
            await pass_time(25)
    assert tries == GIVE_UP_MS // 30_000 + 1


async def test_kip_1191_a_failure_of_long_ago_says_nothing_of_the_topic_today(world: World) -> None:
    partition = world.image.topics[TOPIC].partitions[0]
    partition.leader = BrokerId(-1)
    with pytest.raises(KafkaError):
        await world.bury(0, 0)
    await pass_time(3_600)
    before_ms = world._now_ms()
    with pytest.raises(KafkaError):
        await world.bury(0, 0)
    assert world._now_ms() - before_ms == PATIENCE_MS
    assert not world.missed()


async def test_kip_1191_a_partition_that_is_away_is_given_up_though_others_are_written_to(
    world: World,
) -> None:
    topic = world.image.topics[TOPIC]
    topic.partitions = (*topic.partitions, SimpleNamespace(leader=BrokerId(-1)))
    away = SOURCE._replace(tp=TopicPartition("jobs", 1))
    tries = 0
    while not world.missed():
        tries += 1
        await world.bury(0, 0)
        try:
            await world.letters.write(away, [DeadRecords(0, 0, 1, DeathReason.REJECTED)])
        except KafkaError:
            await pass_time(25)
        assert tries < 20
    assert world.missed() == {"unavailable": 1}


async def test_kip_1191_a_leader_that_does_not_know_the_topic_yet_is_asked_again(
    world: World,
) -> None:
    """The topic has just been created, and other brokers learn that later."""
    world.log.refuses = True
    burying = asyncio.create_task(world.bury(0, 0))
    await pass_time(0.5)
    world.log.refuses = False
    await burying
    assert offsets(await world.written()) == [0]
    assert not world.missed()


async def test_kip_1191_many_dead_letters_may_take_longer_than_one(world: World) -> None:
    world.log.takes_s = 3.0
    await world.bury(0, 9_999)
    assert asyncio.get_running_loop().time() * 1000 > 2 * PATIENCE_MS
    assert world.letters.figures.written == 10_000


async def test_kip_1191_a_batch_is_read_once_for_all_of_its_dead_records(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.config.own["errors.deadletterqueue.copy.record.enable"] = "true"
    await world.broker.produce("jobs", batch(*map(str, range(20))), acks=0)
    world.broker.store.flush()
    reads: list[int] = []

    async def counted(
        replicas: ReplicaManager, source: Source, first: int, last: int
    ) -> SourceRecords:
        reads.append(first)
        return await read_source(replicas, source, first, last)

    monkeypatch.setattr(dead_letters, "read_source", counted)
    dead = [DeadRecords(at, at, 1, DeathReason.REJECTED) for at in range(1, 20, 2)]
    await world.letters.write(SOURCE, dead)
    assert [one.value for one in await world.written()] == [b"%d" % at for at in range(1, 20, 2)]
    assert reads == [1]


async def test_kip_1191_many_dead_letters_come_in_several_batches(world: World) -> None:
    await world.bury(0, 4_999)
    outcome = await world.broker.fetch(TOPIC, 0)
    batches = list(found_batches(outcome.chunks))
    assert sum(one.header.record_count for one in batches) == 5_000
    assert all(len(one.data) <= BATCH_BYTES for one in batches)
    assert len(batches) > 1
