"""What creates, grows, shrinks and deletes topics is the controller's alone to write (Q14)."""

from collections.abc import Callable

import pytest

from quorate.common.types import BrokerId, ControllerEpoch
from quorate.metadata_log.image import Image
from quorate.metadata_log.records import (
    ControllerEpochIs,
    NewPartition,
    Operation,
    PartitionAdditionPending,
    PartitionRemovalPending,
    PartitionsAdded,
    PartitionsRemoved,
    Record,
    ResultCode,
    TopicCreated,
    TopicDeletionPending,
    TopicRemoved,
)
from tests.support.metadata import MetadataLogBuilder, topic_id_of

ONE = BrokerId(1)
NAME, TOPIC = "orders", topic_id_of("orders")
NEW = NewPartition(replicas=(ONE,), leader=ONE, isr=(ONE,))
EPOCH = ControllerEpoch(1)


def counts(image: Image) -> dict[str, int]:
    return {name: len(topic.partitions) for name, topic in image.topics.items()}


MUTATIONS: dict[str, Callable[[], Record]] = {
    "create": lambda: TopicCreated(
        name="new",
        topic_id=topic_id_of("new"),
        partitions=(NEW,),
        controller_id=ONE,
        controller_epoch=EPOCH,
    ),
    "delete": lambda: TopicDeletionPending(name=NAME, topic_id=TOPIC),
    "remove": lambda: TopicRemoved(name=NAME, topic_id=TOPIC),
    "add": lambda: PartitionAdditionPending(
        topic=NAME, topic_id=TOPIC, first_partition=2, replicas=((ONE,),)
    ),
    "added": lambda: PartitionsAdded(
        topic=NAME,
        topic_id=TOPIC,
        first_partition=2,
        partitions=(NEW,),
        controller_id=ONE,
        controller_epoch=EPOCH,
    ),
    "take": lambda: PartitionRemovalPending(topic=NAME, topic_id=TOPIC, first_partition=1),
    "taken": lambda: PartitionsRemoved(topic=NAME, topic_id=TOPIC, first_partition=1),
}


@pytest.mark.parametrize("mutation", MUTATIONS)
@pytest.mark.parametrize("conditions", [(), (ControllerEpochIs(controller_epoch=EPOCH),)])
def test_q14_no_raw_write_creates_expands_or_deletes_topics(
    mutation: str, conditions: tuple[ControllerEpochIs, ...]
) -> None:
    """Neither without the office, nor in the name of one that is over."""
    log = MetadataLogBuilder()
    log.start_broker(1)
    log.start_broker(2)
    log.elect_controller(1)
    log.create_topic(NAME, (1,), (1,))
    log.stop_broker(1)
    assert log.elect_controller(2).ok
    before = log.image
    operation = Operation(records=(MUTATIONS[mutation](),), conditions=conditions)
    (result,) = log.transact(operation).results
    assert result.code in (ResultCode.INVALID, ResultCode.CONTROLLER_FENCED)
    assert counts(log.image) == counts(before)
    assert (log.image.deletions, log.image.additions, log.image.removals) == (
        before.deletions,
        before.additions,
        before.removals,
    )
