"""Operations in few transactions, none too large."""

import pytest

from quorate.broker.controller.managers.decisions import (
    MAX_OPERATIONS_BYTES,
    ControllerTenure,
    split,
)
from quorate.common.types import (
    ID_BYTES,
    NO_BROKER,
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    SessionId,
    TopicId,
)
from quorate.metadata_log.codec import encode_transaction, encoded_bytes
from quorate.metadata_log.records import (
    BrokerAdmitted,
    ConfigSet,
    NewPartition,
    Operation,
    PartitionChange,
    ProducerIdBlock,
    TopicCreated,
    TopicDeletionPending,
    Transaction,
)

HUGE = 2**31 - 1
LARGEST = ControllerTenure(BrokerId(HUGE), ControllerEpoch(HUGE))
TOPIC_ID = TopicId(b"i" * 16)


def change(topic: str, isr: tuple[int, ...], leader: int = NO_BROKER) -> Operation:
    return LARGEST.operation(
        PartitionChange(
            topic=topic,
            topic_id=TOPIC_ID,
            partition=HUGE,
            expected_version=2**62,
            leader=BrokerId(leader),
            leader_epoch=LeaderEpoch(HUGE),
            isr=tuple(map(BrokerId, isr)),
            controller_id=BrokerId(HUGE),
            controller_epoch=ControllerEpoch(HUGE),
        )
    )


def creation(partitions: int, replicas: int) -> Operation:
    ids = tuple(BrokerId(HUGE - n) for n in range(replicas))
    return LARGEST.operation(
        TopicCreated(
            name="ü" * 100,
            topic_id=TOPIC_ID,
            partitions=(NewPartition(replicas=ids, leader=NO_BROKER, isr=ids),) * partitions,
            controller_id=BrokerId(HUGE),
            controller_epoch=ControllerEpoch(HUGE),
        ),
        ConfigSet(entity_type="topic", entity_name="ü" * 100, key="k" * 50, value="v" * 300),
    )


@pytest.mark.parametrize(
    "operation",
    [
        change("t", ()),
        change("x" * 249, tuple(range(HUGE - 9, HUGE))),
        creation(1, 1),
        creation(3_000, 9),
        LARGEST.operation(TopicDeletionPending(name="x" * 249, topic_id=TOPIC_ID)),
        LARGEST.operation(ProducerIdBlock(next_producer_id=2**62)),
        LARGEST.operation(BrokerAdmitted(broker_id=BrokerId(1), broker_epoch=BrokerEpoch(2**62))),
    ],
)
def test_c3_operations_of_the_largest_size_fit_with_what_stands_around_them(
    operation: Operation,
) -> None:
    count = MAX_OPERATIONS_BYTES // encoded_bytes(operation) + 1
    largest = Transaction(
        operations=tuple(next(split([operation] * count))),
        atomic=False,
        client_id=SessionId(b"s" * ID_BYTES),
        sequence=2**63 - 1,
        low_water=2**63 - 1,
        timestamp_ms=2**63 - 1,
    )
    assert len(largest.operations) == count - 1
    assert len(encode_transaction(largest)) <= Transaction.MAX_ENCODED_BYTES


def test_c3_ten_thousand_changes_are_one_entry_or_two() -> None:
    operations = [change("orders-of-the-year", (1, 2, 3), leader=1)] * 10_000
    batches = list(split(operations))
    assert len(batches) <= 2
    assert [one for batch in batches for one in batch] == operations
    for batch in batches:
        encoded = encode_transaction(Transaction(operations=tuple(batch), atomic=False))
        assert len(encoded) <= Transaction.MAX_ENCODED_BYTES


def test_c3_an_operation_is_never_cut() -> None:
    large = creation(20_000, 3)
    assert encoded_bytes(large) > MAX_OPERATIONS_BYTES // 2
    assert [len(batch) for batch in split([large, large, change("t", (1,))])] == [1, 2]


def test_c3_nothing_is_no_transaction() -> None:
    assert list(split([])) == []
