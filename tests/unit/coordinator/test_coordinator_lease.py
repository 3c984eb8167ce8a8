"""When a broker may answer from what it remembers of a partition that it leads."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from quorate.broker.common.broker_identity import BrokerIdentity
from quorate.broker.common.errors import KafkaError
from quorate.broker.coordinator.groups.group_coordinator import GroupCoordinator, GroupSettings
from quorate.broker.coordinator.groups.group_shard import GroupShard
from quorate.broker.coordinator.groups.shard_clock import ShardClock
from quorate.broker.coordinator.groups.state.group_basis import GroupLimits
from quorate.broker.coordinator.shards.coordinator_lease import CoordinatorLease
from quorate.common.types import BrokerId, LeaderEpoch, TopicPartition
from quorate.quorum.client.keep_alives import KeepAlives
from quorate_proto.v1 import errors_pb2
from tests.support.followers import ShownImage
from tests.support.identities import registered
from tests.support.kafka_fakes import FakeOffsetsLog
from tests.support.metadata import MetadataLogBuilder
from tests.support.share_fakes import share_parts
from tests.support.virtual_time import pass_time
from tests.unit.coordinator.consumer_world import FakeTopics
from tests.unit.coordinator.memory_log import consumer_parts

TP = TopicPartition("__consumer_offsets", 0)
OWN, OTHER = BrokerId(1), BrokerId(2)


@dataclass
class Broker:
    """Broker 1, which leads in epoch 0 by the metadata log."""

    log: MetadataLogBuilder = field(default_factory=MetadataLogBuilder)
    now_ms: int = 1_000
    session_until_ms: int = 7_000
    identity: BrokerIdentity = field(default_factory=lambda: registered(OWN, None))

    def __post_init__(self) -> None:
        for broker_id in (OWN, OTHER):
            self.log.start_broker(broker_id)
        self.log.elect_controller(OWN)
        self.log.create_topic(TP.topic, (OWN, OTHER))
        self.image = self.log.image
        self.identity.register(self.image.brokers[OWN].epoch)

    def is_valid(self, epoch: int = 0, tp: TopicPartition = TP) -> bool:
        quorum: Any = SimpleNamespace(
            last_keep_alive_ms=self.session_until_ms - 6_000, session_timeout_ms=6_000
        )
        sure = CoordinatorLease(
            self.identity,
            lambda: self.now_ms,
            quorum,
            ShownImage(lambda: self.image),
        )
        return sure.is_valid(tp, LeaderEpoch(epoch))

    def elect(self, leader: BrokerId, epoch: int) -> None:
        topic = self.image.topics[TP.topic]
        leaf = msgspec.structs.replace(
            topic.partitions[0], leader=leader, leader_epoch=LeaderEpoch(epoch)
        )
        topics = self.image.topics.set(TP.topic, msgspec.structs.replace(topic, partitions=(leaf,)))
        self.image = msgspec.structs.replace(self.image, topics=topics)


def test_who_leads_by_the_metadata_log_may_speak_while_its_session_lasts() -> None:
    broker = Broker()
    assert broker.is_valid()
    broker.now_ms = 6_999
    assert broker.is_valid()
    broker.now_ms = 7_000
    assert not broker.is_valid(), "it may have been stopped, and somebody else be elected"


def test_who_sees_another_elected_may_not() -> None:
    broker = Broker()
    broker.elect(OTHER, 1)
    assert not broker.is_valid(0)
    broker.elect(OWN, 2)
    assert not broker.is_valid(0), "somebody else led in between"
    assert broker.is_valid(2)


def test_a_command_may_come_before_the_log_does() -> None:
    broker = Broker()
    broker.elect(OTHER, 1)
    assert broker.is_valid(2)


def test_in_a_new_session_it_has_to_see_its_registration_first() -> None:
    broker = Broker()
    broker.identity.unregister()
    assert not broker.is_valid()
    broker.log.stop_broker(OWN)
    broker.log.start_broker(OWN, incarnation=1)
    broker.identity.register(broker.log.image.brokers[OWN].epoch)
    assert not broker.is_valid(), "who was elected meanwhile stands before it in the log"
    broker.image = broker.log.image
    assert broker.is_valid()


def test_the_time_of_a_session_stands_still_while_it_is_in_doubt() -> None:
    broker = Broker()
    answers = KeepAlives()
    quorum: Any = SimpleNamespace(session_doubt_ms=answers.doubt_ms)
    lease = CoordinatorLease(
        broker.identity, lambda: broker.now_ms, quorum, ShownImage(lambda: broker.image)
    )
    answers.answered(1_000, 1_000, 6_000)
    seen = []
    for broker.now_ms in (1_000, 7_000, 8_000, 90_000):
        seen.append(lease.session_time_ms() - 1_000)
    answers.answered(95_000, 95_000, 6_000)
    for broker.now_ms in (95_000, 96_000):
        seen.append(lease.session_time_ms() - 1_000)
    assert [each - seen[0] for each in seen] == [0, 6_000, 6_000, 6_000, 6_000, 7_000]


@pytest.mark.parametrize("tp", [TP._replace(partition=1), TP._replace(topic="gone")])
def test_nobody_speaks_for_what_is_not_there(tp: TopicPartition) -> None:
    assert not Broker().is_valid(tp=tp)


async def test_who_may_not_speak_is_no_coordinator() -> None:
    log = FakeOffsetsLog()
    clock = ShardClock(lambda: 0, lambda: 0)
    limits = GroupLimits(max_members=1, initial_delay_ms=0)
    settings = GroupSettings(limits, 0, 0, 0, 0, 0)
    parts = consumer_parts(FakeTopics())
    shards = GroupCoordinator(
        settings, clock, lambda _topic: 1, str, parts, share_parts(FakeTopics())
    )
    shards.lead(0, log)
    (shard,) = shards._shards.values()
    await shard.load()
    assert shards.shard_of("g") is shard
    log.has_valid_lease = False
    with pytest.raises(KafkaError, match="or may be") as refusal:
        shards.shard_of("g")
    assert refusal.value.code == errors_pb2.NOT_COORDINATOR
    await shards.close()


async def test_a_shard_that_fails_to_load_says_so_and_others_go_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(_: GroupShard) -> None:
        raise ValueError("a record that nobody thought of")

    clock = ShardClock(lambda: 0, lambda: 0)
    settings = GroupSettings(GroupLimits(max_members=1, initial_delay_ms=0), 0, 0, 0, 0, 0)
    topics = FakeTopics()
    parts, shares = consumer_parts(topics), share_parts(topics)
    shards = GroupCoordinator(settings, clock, lambda _topic: 1, str, parts, shares)
    with monkeypatch.context() as patch:
        patch.setattr(GroupShard, "load", fail)
        shards.lead(0, FakeOffsetsLog())
        await pass_time(1)
    with pytest.raises(KafkaError, match="failed to load, see the log") as refusal:
        shards.shard_of("g")
    assert refusal.value.code == errors_pb2.COORDINATOR_NOT_AVAILABLE
    assert not shards.is_loading
    (record,) = [each for each in caplog.records if each.levelname == "ERROR"]
    assert "__consumer_offsets-0 failed to load" in record.message
    assert record.exc_info is not None
    shards.resign(0)
    shards.lead(0, FakeOffsetsLog())
    await pass_time(1)
    assert shards.shard_of("g").name == "__consumer_offsets-0"
    await shards.close()
