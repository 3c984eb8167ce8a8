"""Topics, their deletion, and the delegated admin state: configs, features, producer ids."""

import pytest

from quorate.common.types import (
    BrokerId,
    ControllerEpoch,
    TopicId,
    TopicPartition,
)
from quorate.metadata_log.image import EntityKey
from quorate.metadata_log.records import (
    ConfigSet,
    NewPartition,
    ProducerIdBlock,
    Record,
    ResultCode,
    TopicCreated,
    TopicDeletionPending,
    TopicRemoved,
)
from tests.support.metadata import MetadataLogBuilder, topic_id_of

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)


@pytest.fixture
def log() -> MetadataLogBuilder:
    """Three brokers, broker 1 the controller."""
    log = MetadataLogBuilder()
    for broker_id in (1, 2, 3):
        log.start_broker(broker_id)
    log.elect_controller(1)
    return log


def code(log: MetadataLogBuilder, record: Record) -> ResultCode:
    return log.write_as_controller(record).results[0].code


def created(*partitions: NewPartition, topic_id: TopicId | None = None) -> TopicCreated:
    return TopicCreated(
        name="orders",
        topic_id=topic_id_of("orders") if topic_id is None else topic_id,
        partitions=partitions,
        controller_id=ONE,
        controller_epoch=ControllerEpoch(1),
    )


def partition(
    *replicas: BrokerId, leader: BrokerId, isr: tuple[BrokerId, ...] | None = None
) -> NewPartition:
    return NewPartition(replicas=replicas, leader=leader, isr=replicas if isr is None else isr)


# --- topics -------------------------------------------------------------------------------------


def test_c4_new_topic_starts_at_leader_epoch_zero_with_its_first_isr(
    log: MetadataLogBuilder,
) -> None:
    live_only = partition(ONE, TWO, THREE, leader=TWO, isr=(TWO, THREE))
    result = log.write_as_controller(created(live_only, partition(THREE, ONE, leader=THREE)))
    assert result.ok
    first, second = log.image.topics["orders"].partitions
    assert (first.leader, first.leader_epoch, first.isr) == (TWO, 0, (TWO, THREE))
    assert (first.preferred_leader, first.under_replicated, first.version) == (ONE, True, 0)
    assert (second.leader, second.isr, second.under_replicated) == (THREE, (THREE, ONE), False)
    assert (first.controller_id, first.controller_epoch) == (1, 1)
    assert log.image.topics["orders"].version == result.offset


@pytest.mark.parametrize(
    "record",
    [
        created(),
        created(partition(leader=ONE)),
        created(partition(ONE, ONE, leader=ONE)),
        created(partition(ONE, TWO, leader=THREE)),
        created(partition(ONE, TWO, leader=ONE, isr=(TWO,))),
        created(partition(ONE, TWO, leader=ONE, isr=(ONE, THREE))),
        created(partition(ONE, leader=ONE), topic_id=TopicId(b"short")),
    ],
)
def test_c4_malformed_topic_is_refused(log: MetadataLogBuilder, record: TopicCreated) -> None:
    assert code(log, record) is ResultCode.INVALID
    assert not log.image.topics
    assert not log.image.topic_names


def test_topic_exists_once_by_name_and_by_id(log: MetadataLogBuilder) -> None:
    log.create_topic("orders", (1, 2))
    again = created(partition(ONE, leader=ONE), topic_id=topic_id_of("other"))
    assert code(log, again) is ResultCode.TOPIC_EXISTS
    same_id = TopicCreated(
        name="other",
        topic_id=topic_id_of("orders"),
        partitions=(partition(ONE, leader=ONE),),
        controller_id=ONE,
        controller_epoch=ControllerEpoch(1),
    )
    assert code(log, same_id) is ResultCode.INVALID
    assert list(log.image.topics) == ["orders"]


def test_topic_of_a_deposed_controller_is_refused(log: MetadataLogBuilder) -> None:
    log.stop_broker(1)
    log.elect_controller(2)
    assert code(log, created(partition(ONE, leader=ONE))) is ResultCode.CONTROLLER_FENCED


def test_c5_deletion_is_pending_until_the_topic_is_removed_with_all_that_hangs_on_it(
    log: MetadataLogBuilder,
) -> None:
    log.create_topic("orders", (1, 2))
    log.write_as_controller(
        ConfigSet(entity_type="topic", entity_name="orders", key="k", value="v")
    )
    pending = TopicDeletionPending(name="orders", topic_id=topic_id_of("orders"))
    first = log.write_as_controller(pending).results[0]
    assert first.ok
    assert log.image.deletions["orders"].version == first.version
    assert log.write_as_controller(pending).ok
    assert log.image.deletions["orders"].version == first.version
    assert "orders" in log.image.topics

    assert code(log, TopicRemoved(name="orders", topic_id=topic_id_of("orders"))) is ResultCode.OK
    image = log.image
    assert (len(image.topics), len(image.topic_names), len(image.deletions)) == (0, 0, 0)
    assert EntityKey(("topic", "orders")) not in image.configs
    assert image.partition(TopicPartition("orders", 0)) is None
    assert image.topic_by_id(topic_id_of("orders")) is None


def test_c5_late_removal_cannot_hit_the_next_topic_of_that_name(log: MetadataLogBuilder) -> None:
    log.create_topic("orders", (1, 2))
    old = TopicRemoved(name="orders", topic_id=topic_id_of("orders"))
    assert code(log, old) is ResultCode.OK
    log.create_topic("orders", (2, 3), generation=1)
    assert code(log, old) is ResultCode.UNKNOWN_TOPIC
    old_mark = TopicDeletionPending(name="orders", topic_id=topic_id_of("orders"))
    assert code(log, old_mark) is ResultCode.UNKNOWN_TOPIC
    assert log.image.topics["orders"].topic_id == topic_id_of("orders", 1)


def test_topic_can_be_removed_and_made_again_in_one_transaction(log: MetadataLogBuilder) -> None:
    log.create_topic("orders", (1, 2))
    remove = TopicRemoved(name="orders", topic_id=topic_id_of("orders"))
    again = created(partition(THREE, leader=THREE), topic_id=topic_id_of("orders", 1))
    assert log.write_as_controller(remove, again).ok
    found = log.image.topic_by_id(topic_id_of("orders", 1))
    assert found is not None
    assert found.partitions[0].leader == THREE
    assert topic_id_of("orders") not in log.image.topic_names


# --- configs, features, producer ids ------------------------------------------------------------


def config(key: str, value: str | None, name: str = "orders") -> ConfigSet:
    return ConfigSet(entity_type="topic", entity_name=name, key=key, value=value)


def test_config_keys_are_set_replaced_and_removed_one_by_one(log: MetadataLogBuilder) -> None:
    for record in (config("a", "1"), config("b", ""), config("a", "2"), config("c", None)):
        assert code(log, record) is ResultCode.OK
    assert dict(log.image.config("topic", "orders")) == {"a": "2", "b": ""}
    assert dict(log.image.config("topic", "other")) == {}


def test_entity_without_keys_is_not_kept(log: MetadataLogBuilder) -> None:
    log.write_as_controller(config("a", "1"))
    log.write_as_controller(config("a", None))
    assert not log.image.configs


def test_defaults_of_a_type_are_an_entity_of_their_own(log: MetadataLogBuilder) -> None:
    log.write_as_controller(config("a", "1", name=""))
    assert dict(log.image.config("topic", "")) == {"a": "1"}
    assert dict(log.image.config("topic", "orders")) == {}


def test_producer_ids_are_never_assigned_twice(log: MetadataLogBuilder) -> None:
    assert code(log, ProducerIdBlock(next_producer_id=1000)) is ResultCode.OK
    for taken in (999, 1000, 0):
        record = ProducerIdBlock(next_producer_id=taken)
        assert code(log, record) is ResultCode.CONDITION_FAILED
    assert code(log, ProducerIdBlock(next_producer_id=2000)) is ResultCode.OK
    assert log.image.next_producer_id == 2000
