"""Transactions: atomic or not, undone on refusal, conditional, and applied exactly once."""

import pytest

from quorate.common.invariants import BrokenInvariant
from quorate.common.types import (
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    MetadataOffset,
    TopicPartition,
)
from quorate.metadata_log.apply import apply
from quorate.metadata_log.image import Changes, EntityKey, Image
from quorate.metadata_log.records import (
    Absent,
    AtVersion,
    Condition,
    ConfigSet,
    ControllerEpochIs,
    NewPartition,
    Operation,
    PartitionChange,
    ProducerIdBlock,
    Record,
    ResultCode,
    SessionAlive,
    SessionClosed,
    SessionOpened,
    TopicCreated,
    TopicRemoved,
    Transaction,
)
from tests.support.metadata import MetadataLogBuilder, session_of, topic_id_of

CLIENT = session_of(1)
TP = TopicPartition("orders", 0)


@pytest.fixture
def log() -> MetadataLogBuilder:
    """Three brokers, broker 1 the controller, topic "orders" of one partition on all three."""
    log = MetadataLogBuilder()
    for broker_id in (1, 2, 3):
        log.start_broker(broker_id)
    log.elect_controller(1)
    assert log.create_topic("orders", (1, 2, 3)).ok
    return log


def as_controller(*records: Record, epoch: int = 1) -> Operation:
    condition = ControllerEpochIs(controller_epoch=ControllerEpoch(epoch))
    return Operation(records=records, conditions=(condition,))


def set_config(key: str, value: str | None = "1") -> ConfigSet:
    return ConfigSet(entity_type="topic", entity_name="orders", key=key, value=value)


def lead(leader: int, epoch: int, version: int) -> PartitionChange:
    return PartitionChange(
        topic="orders",
        topic_id=topic_id_of("orders"),
        partition=0,
        expected_version=version,
        leader=BrokerId(leader),
        leader_epoch=LeaderEpoch(epoch),
        isr=(BrokerId(leader),),
        controller_id=BrokerId(1),
        controller_epoch=ControllerEpoch(1),
    )


STALE = as_controller(lead(2, 1, version=99))


def without_offset(image: Image) -> tuple[object, ...]:
    return (
        image.controller,
        image.controller_epoch,
        image.next_producer_id,
        image.sessions,
        image.brokers,
        image.topics,
        image.topic_names,
        image.deletions,
        image.configs,
        image.features,
    )


def codes(log: MetadataLogBuilder, *operations: Operation, atomic: bool = True) -> list[ResultCode]:
    return [r.code for r in log.transact(*operations, atomic=atomic).results]


# --- atomic, and each for itself ----------------------------------------------------------------


def test_atomic_transaction_with_one_refusal_changes_nothing(log: MetadataLogBuilder) -> None:
    before = log.image
    applied = log.apply(
        Transaction(
            operations=(as_controller(set_config("a")), STALE, as_controller(lead(3, 1, 0)))
        )
    )
    assert [r.code for r in applied.result.results] == [
        ResultCode.ABORTED,
        ResultCode.VERSION_CONFLICT,
        ResultCode.ABORTED,
    ]
    assert without_offset(applied.image) == without_offset(before)
    assert applied.changes == Changes()
    assert applied.image.offset == before.offset + 1


def test_independent_operations_stand_alone(log: MetadataLogBuilder) -> None:
    operations = (as_controller(set_config("a")), STALE, as_controller(lead(3, 1, 0)))
    assert codes(log, *operations, atomic=False) == [
        ResultCode.OK,
        ResultCode.VERSION_CONFLICT,
        ResultCode.OK,
    ]
    assert dict(log.image.config("topic", "orders")) == {"a": "1"}
    partition = log.image.partition(TP)
    assert partition is not None
    assert partition.leader == 3


def test_refused_operation_leaves_no_part_of_itself(log: MetadataLogBuilder) -> None:
    half = as_controller(set_config("a"), lead(2, 1, 0), lead(3, 2, 0))
    assert codes(log, half, as_controller(set_config("b")), atomic=False) == [
        ResultCode.VERSION_CONFLICT,
        ResultCode.OK,
    ]
    assert dict(log.image.config("topic", "orders")) == {"b": "1"}
    partition = log.image.partition(TP)
    assert partition is not None
    assert (partition.leader, partition.version) == (1, 0)


def test_refused_removal_keeps_what_the_operation_before_it_wrote(log: MetadataLogBuilder) -> None:
    remove = TopicRemoved(name="orders", topic_id=topic_id_of("orders"))
    assert codes(
        log, as_controller(lead(2, 1, 0)), as_controller(remove, lead(3, 2, 1)), atomic=False
    ) == [ResultCode.OK, ResultCode.UNKNOWN_TOPIC]
    partition = log.image.partition(TP)
    assert partition is not None
    assert (partition.leader, partition.version) == (2, 1)
    assert log.image.topic_by_id(topic_id_of("orders")) is log.image.topics["orders"]


def test_records_see_the_operations_before_them(log: MetadataLogBuilder) -> None:
    result = log.transact(as_controller(lead(2, 1, 0)), as_controller(lead(3, 2, 1)))
    assert [r.version for r in result.results] == [1, 2]
    partition = log.image.partition(TP)
    assert partition is not None
    assert (partition.leader, partition.leader_epoch) == (3, 2)


def test_removed_topic_takes_drafted_leaves_along(log: MetadataLogBuilder) -> None:
    """A topic of the same name that the transaction then makes starts with its own leaves."""
    remove = TopicRemoved(name="orders", topic_id=topic_id_of("orders"))
    again = TopicCreated(
        name="orders",
        topic_id=topic_id_of("orders", 1),
        partitions=(NewPartition(replicas=(BrokerId(3),), leader=BrokerId(3), isr=(BrokerId(3),)),),
        controller_id=BrokerId(1),
        controller_epoch=ControllerEpoch(1),
    )
    assert log.transact(as_controller(lead(2, 1, 0)), as_controller(remove, again)).ok
    partition = log.image.partition(TP)
    assert partition is not None
    assert (partition.leader, partition.leader_epoch) == (3, 0)
    assert topic_id_of("orders") not in log.image.topic_names


def test_scalars_are_undone_like_tables(log: MetadataLogBuilder) -> None:
    block = as_controller(ProducerIdBlock(next_producer_id=1000))
    codes(log, block, STALE)
    assert log.image.next_producer_id == 0
    assert codes(log, block, STALE, atomic=False) == [ResultCode.OK, ResultCode.VERSION_CONFLICT]
    assert log.image.next_producer_id == 1000


# --- conditions ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("condition", "code"),
    [
        (ControllerEpochIs(controller_epoch=ControllerEpoch(1)), ResultCode.OK),
        (ControllerEpochIs(controller_epoch=ControllerEpoch(2)), ResultCode.CONTROLLER_FENCED),
        (ControllerEpochIs(controller_epoch=ControllerEpoch(0)), ResultCode.CONTROLLER_FENCED),
        (Absent(path="/brokers/ids/9"), ResultCode.OK),
        (Absent(path="/brokers/ids/1"), ResultCode.CONDITION_FAILED),
        (Absent(path="/admin/delete_topics/orders"), ResultCode.OK),
        (AtVersion(path="/controller_epoch", version=1), ResultCode.OK),
        (AtVersion(path="/controller_epoch", version=2), ResultCode.CONDITION_FAILED),
        (AtVersion(path="/brokers/topics/gone", version=0), ResultCode.CONDITION_FAILED),
        (
            AtVersion(path="/brokers/topics/orders/0/leaderAndISR", version=0),
            ResultCode.OK,
        ),
        (AtVersion(path="/no/such/place", version=1), ResultCode.INVALID),
        (SessionAlive(session_id=CLIENT), ResultCode.OK),
        (SessionAlive(session_id=session_of(9)), ResultCode.SESSION_GONE),
    ],
)
def test_condition_decides_whether_an_operation_takes_effect(
    log: MetadataLogBuilder, condition: Condition, code: ResultCode
) -> None:
    opened = SessionOpened(session_id=session_of(77), timeout_ms=1)
    assert codes(log, Operation(records=(opened,), conditions=(condition,))) == [code]
    assert (session_of(77) in log.image.sessions) == (code is ResultCode.OK)


def test_conditions_speak_of_the_image_before_the_transaction(log: MetadataLogBuilder) -> None:
    path = "/brokers/topics/orders/0/leaderAndISR"
    first = as_controller(lead(2, 1, 0))
    second = Operation(records=(), conditions=(AtVersion(path=path, version=0),))
    assert codes(log, first, second) == [ResultCode.OK, ResultCode.OK]


def test_e3_every_controller_record_must_carry_the_controller_epoch(
    log: MetadataLogBuilder,
) -> None:
    assert codes(log, Operation(records=(set_config("a"),))) == [ResultCode.INVALID]
    assert EntityKey(("topic", "orders")) not in log.image.configs


def test_e3_deposed_controller_can_change_nothing(log: MetadataLogBuilder) -> None:
    log.stop_broker(1)
    assert codes(log, as_controller(lead(2, 1, 0))) == [ResultCode.CONTROLLER_FENCED]
    log.elect_controller(2)
    assert codes(log, as_controller(lead(2, 1, 0))) == [ResultCode.CONTROLLER_FENCED]
    borrowed_epoch = as_controller(lead(2, 1, 0), epoch=2)
    assert codes(log, borrowed_epoch) == [ResultCode.CONTROLLER_FENCED]


# --- exactly once -------------------------------------------------------------------------------


def numbered(
    log: MetadataLogBuilder, sequence: int, *operations: Operation, low_water: int = 0
) -> list[ResultCode]:
    result = log.transact(*operations, client_id=CLIENT, sequence=sequence, low_water=low_water)
    return [r.code for r in result.results]


def test_retry_gets_the_first_result_and_changes_nothing(log: MetadataLogBuilder) -> None:
    change = as_controller(lead(2, 1, 0))
    first = log.transact(change, client_id=CLIENT, sequence=5)
    image = log.image
    again = log.transact(change, client_id=CLIENT, sequence=5)
    assert again == first
    assert without_offset(log.image) == without_offset(image)
    assert log.image.offset > image.offset


def test_retry_of_a_refusal_gets_the_refusal_even_if_it_would_hold_now(
    log: MetadataLogBuilder,
) -> None:
    change = as_controller(lead(3, 2, 1))
    assert numbered(log, 1, change) == [ResultCode.VERSION_CONFLICT]
    assert numbered(log, 2, as_controller(lead(2, 1, 0))) == [ResultCode.OK]
    assert numbered(log, 1, change) == [ResultCode.VERSION_CONFLICT]


def test_retry_below_the_low_water_mark_is_never_applied(log: MetadataLogBuilder) -> None:
    assert numbered(log, 1, as_controller(set_config("a"))) == [ResultCode.OK]
    assert numbered(log, 2, as_controller(set_config("b")), low_water=2) == [ResultCode.OK]
    late = (as_controller(set_config("a", "again")), as_controller(set_config("c")))
    assert numbered(log, 1, *late) == [ResultCode.OUTCOME_UNKNOWN] * 2
    assert dict(log.image.config("topic", "orders")) == {"a": "1", "b": "1"}


def test_results_below_the_low_water_mark_are_forgotten(log: MetadataLogBuilder) -> None:
    for sequence in range(1, 6):
        numbered(log, sequence, Operation(records=()), low_water=max(0, sequence - 2))
    assert sorted(log.image.results[CLIENT].by_sequence) == [3, 4, 5]


def test_late_frame_does_not_lower_the_low_water_mark(log: MetadataLogBuilder) -> None:
    numbered(log, 3, Operation(records=()), low_water=3)
    numbered(log, 4, Operation(records=()), low_water=0)
    assert log.image.results[CLIENT].low_water == 3


def test_closed_session_writes_nothing_and_keeps_no_results(log: MetadataLogBuilder) -> None:
    numbered(log, 1, Operation(records=()))
    log.write(SessionClosed(session_id=CLIENT))
    assert CLIENT not in log.image.results
    assert numbered(log, 2, Operation(records=()), Operation(records=())) == [
        ResultCode.SESSION_GONE,
        ResultCode.SESSION_GONE,
    ]
    assert CLIENT not in log.image.results


def test_client_that_closes_its_own_session_keeps_no_result(log: MetadataLogBuilder) -> None:
    closing = Operation(records=(SessionClosed(session_id=CLIENT),))
    assert numbered(log, 1, closing) == [ResultCode.OK]
    assert CLIENT not in log.image.results
    assert numbered(log, 1, closing) == [ResultCode.SESSION_GONE]


def test_session_whose_closing_is_refused_keeps_its_results(log: MetadataLogBuilder) -> None:
    first = log.transact(as_controller(set_config("a")), client_id=CLIENT, sequence=1)
    assert not log.transact(Operation(records=(SessionClosed(session_id=CLIENT),)), STALE).ok
    again = log.transact(as_controller(set_config("b")), client_id=CLIENT, sequence=1)
    assert again == first, "the retry is known"


def test_an_offset_is_applied_once(log: MetadataLogBuilder) -> None:
    with pytest.raises(BrokenInvariant, match="in the order of offsets"):
        apply(log.image, MetadataOffset(log.image.offset), Transaction(operations=()))


def test_changes_name_what_differs(log: MetadataLogBuilder) -> None:
    remove = TopicRemoved(name="orders", topic_id=topic_id_of("orders"))
    applied = log.apply(Transaction(operations=(as_controller(remove),)))
    assert applied.changes.topics == {"orders"}
    applied = log.apply(
        Transaction(operations=(Operation(records=(SessionClosed(session_id=CLIENT),)),))
    )
    assert applied.changes.brokers == {1}
    assert applied.changes.controller
    assert applied.changes.sessions == {CLIENT}
