"""What the quorum knows of a partition that no command mentions (rule 7)."""

import msgspec
import pytest

from quorate.broker.replication.commands.stray_partitions import Assignment, assignment
from quorate.common.types import BrokerId, MetadataOffset, TopicIdPartition
from quorate.metadata_log.image import Image
from quorate.metadata_log.records import TopicDeletionPending, TopicRemoved
from tests.support.metadata import MetadataLogBuilder, topic_id_of

OWN = BrokerId(1)
RESTORED_AT = 1_000
ENDED, HOLDS, UNKNOWN = Assignment.ENDED, Assignment.HOLDS, Assignment.UNKNOWN


def begun() -> MetadataLogBuilder:
    log = MetadataLogBuilder()
    for broker_id in (1, 2):
        log.start_broker(broker_id)
    log.elect_controller(1)
    return log


def image(*replicas: int, restored_offset: int = 0) -> Image:
    log = begun()
    if replicas:
        log.create_topic("orders", replicas)
    return msgspec.structs.replace(
        log.image,
        restored_offset=MetadataOffset(restored_offset),
        offset=MetadataOffset(log.image.offset + 2 * restored_offset),
    )


TIP = TopicIdPartition(topic_id_of("orders"), 0)


def test_rule_7_what_was_reassigned_may_be_deleted() -> None:
    assert assignment(image(2), OWN, TIP, assigned_at=5) is ENDED


def test_rule_7_what_is_assigned_may_not() -> None:
    assert assignment(image(1, 2), OWN, TIP, assigned_at=5) is HOLDS


def test_rule_7_a_topic_that_the_quorum_never_had_is_unknown() -> None:
    assert assignment(image(), OWN, TIP, assigned_at=5) is UNKNOWN
    one_bit_off = bytes([TIP.topic_id[0] ^ 1]) + TIP.topic_id[1:]
    damaged = TIP._replace(topic_id=one_bit_off)  # type: ignore[arg-type]
    assert assignment(image(1, 2), OWN, damaged, assigned_at=5) is UNKNOWN


def test_rule_7_a_partition_that_the_topic_never_had_is_unknown() -> None:
    assert assignment(image(1, 2), OWN, TIP._replace(partition=1), assigned_at=5) is UNKNOWN


def test_rule_7_what_was_assigned_later_than_all_that_the_quorum_knows_is_unknown() -> None:
    known = image(2)
    assert assignment(known, OWN, TIP, assigned_at=known.offset + 1) is UNKNOWN


@pytest.mark.parametrize("restored_offset", [0, RESTORED_AT])
def test_rule_7_a_deleted_topic_that_is_remembered_may_go(restored_offset: int) -> None:
    log = begun()
    log.create_topic("orders", (1,))
    log.write_as_controller(TopicRemoved(name="orders", topic_id=TIP.topic_id))
    known = msgspec.structs.replace(log.image, restored_offset=MetadataOffset(restored_offset))
    assert assignment(known, OWN, TIP, assigned_at=5) is ENDED


@pytest.mark.parametrize("replicas", [(), (2,)])
@pytest.mark.parametrize("assigned_at", [0, 5, RESTORED_AT])
def test_rule_7_what_a_restored_quorum_cannot_know_is_kept(
    replicas: tuple[int, ...], assigned_at: int
) -> None:
    restored = image(*replicas, restored_offset=RESTORED_AT)
    assert assignment(restored, OWN, TIP, assigned_at=assigned_at) is UNKNOWN


def test_rule_7_what_was_assigned_after_the_restore_is_the_quorums_to_take_away() -> None:
    restored = image(2, restored_offset=RESTORED_AT)
    assert assignment(restored, OWN, TIP, assigned_at=RESTORED_AT + 1) is ENDED


def test_c5_what_is_being_deleted_may_go_at_once() -> None:
    """An accepted deletion is never taken back; its broker may have missed the StopReplica."""
    log = begun()
    log.create_topic("orders", (1,))
    log.write_as_controller(TopicDeletionPending(name="orders", topic_id=TIP.topic_id))
    assert assignment(log.image, OWN, TIP, assigned_at=5) is ENDED


def test_c14_a_removed_partition_may_go_and_the_one_added_under_its_number_is_another() -> None:
    log = begun()
    log.create_topic("orders", (1,), (1,))
    topic_id = log.image.topics["orders"].topic_id
    stays, goes = TopicIdPartition(topic_id, 0), TopicIdPartition(topic_id, 1)
    assigned_at = log.image.offset
    assert assignment(log.image, OWN, goes, assigned_at) is HOLDS
    log.remove_partitions("orders", 1)
    assert assignment(log.image, OWN, goes, assigned_at) is ENDED, "it is never taken back"
    log.complete_removal("orders")
    assert assignment(log.image, OWN, goes, assigned_at) is ENDED
    log.add_partitions("orders", (1,))
    log.complete_addition("orders")
    assert assignment(log.image, OWN, goes, assigned_at) is ENDED
    assert assignment(log.image, OWN, goes, log.image.offset) is HOLDS, "the new one's log"
    assert assignment(log.image, OWN, stays, assigned_at) is HOLDS
