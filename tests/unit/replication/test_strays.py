"""What may be deleted of what the quorum does not mention (rule 7)."""

import msgspec
import pytest

from quorate.broker.replication.commands.stray_partitions import may_be_deleted
from quorate.common.types import BrokerId, MetadataOffset, TopicIdPartition
from quorate.metadata_log.image import Image
from quorate.metadata_log.records import TopicDeletionPending
from tests.support.metadata import MetadataLogBuilder, topic_id_of

OWN = BrokerId(1)
RESTORED_AT = 1_000


def image(*replicas: int, restored_offset: int = 0) -> Image:
    log = MetadataLogBuilder()
    for broker_id in (1, 2):
        log.start_broker(broker_id)
    log.elect_controller(1)
    if replicas:
        log.create_topic("orders", replicas)
    return msgspec.structs.replace(log.image, restored_offset=MetadataOffset(restored_offset))


TIP = TopicIdPartition(topic_id_of("orders"), 0)


@pytest.mark.parametrize("replicas", [(), (2,)])
def test_rule_7_what_the_quorum_took_away_may_be_deleted(replicas: tuple[int, ...]) -> None:
    assert may_be_deleted(image(*replicas), OWN, TIP, assigned_at=5)


def test_rule_7_what_is_assigned_may_not() -> None:
    assert not may_be_deleted(image(1, 2), OWN, TIP, assigned_at=5)


@pytest.mark.parametrize("replicas", [(), (2,)])
@pytest.mark.parametrize("assigned_at", [0, 5, RESTORED_AT])
def test_rule_7_what_a_restored_quorum_cannot_know_is_kept(
    replicas: tuple[int, ...], assigned_at: int
) -> None:
    restored = image(*replicas, restored_offset=RESTORED_AT)
    assert not may_be_deleted(restored, OWN, TIP, assigned_at=assigned_at)


def test_rule_7_what_was_assigned_after_the_restore_is_the_quorums_to_take_away() -> None:
    restored = image(2, restored_offset=RESTORED_AT)
    assert may_be_deleted(restored, OWN, TIP, assigned_at=RESTORED_AT + 1)


def test_c5_what_is_being_deleted_may_go_at_once() -> None:
    """An accepted deletion is never taken back; its broker may have missed the StopReplica."""
    log = MetadataLogBuilder()
    log.start_broker(1)
    log.elect_controller(1)
    log.create_topic("orders", (1,))
    log.write_as_controller(TopicDeletionPending(name="orders", topic_id=TIP.topic_id))
    assert may_be_deleted(log.image, OWN, TIP, assigned_at=5)


def test_c14_a_removed_partition_may_go_and_the_one_added_under_its_number_is_another() -> None:
    log = MetadataLogBuilder()
    log.start_broker(1)
    log.elect_controller(1)
    log.create_topic("orders", (1,), (1,))
    topic_id = log.image.topics["orders"].topic_id
    stays, goes = TopicIdPartition(topic_id, 0), TopicIdPartition(topic_id, 1)
    assigned_at = log.image.offset
    assert not may_be_deleted(log.image, OWN, goes, assigned_at)
    log.remove_partitions("orders", 1)
    assert may_be_deleted(log.image, OWN, goes, assigned_at), "it is never taken back"
    log.complete_removal("orders")
    assert may_be_deleted(log.image, OWN, goes, assigned_at)
    log.add_partitions("orders", (1,))
    log.complete_addition("orders")
    assert may_be_deleted(log.image, OWN, goes, assigned_at)
    assert not may_be_deleted(log.image, OWN, goes, log.image.offset), "the new one's log"
    assert not may_be_deleted(log.image, OWN, stays, assigned_at)
