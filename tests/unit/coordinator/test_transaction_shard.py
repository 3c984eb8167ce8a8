"""The transactional ids of one partition: loaded from its log, written to it, and completed."""

import asyncio

import pytest

from quorate.broker.common.errors import KafkaError
from quorate.broker.coordinator.shards.coordinator_records import LogRecord
from quorate.broker.coordinator.transactions.state import transaction_log_format as log_format
from quorate.broker.coordinator.transactions.state.transaction_metadata import (
    ProducerEpoch,
    TransactionState,
)
from quorate.broker.coordinator.transactions.transaction_shard import TransactionShard
from quorate_proto.v1 import errors_pb2
from tests.support.virtual_time import pass_time
from tests.unit.coordinator.transaction_world import MINUTE_MS, A, B, World

State = TransactionState


@pytest.fixture
def world() -> World:
    return World()


async def opened(shard: TransactionShard, name: str = "pay") -> ProducerEpoch:
    """A producer with an open transaction in two partitions."""
    producer = await shard.init_producer(name, MINUTE_MS, None)
    assert await shard.add_partitions(name, producer, {A, B}) == 0
    return producer


def state_of(shard: TransactionShard, name: str = "pay") -> TransactionState | None:
    found = shard.transaction(name)
    return None if found is None else found.state


@pytest.mark.parametrize("commit", [True, False])
async def test_a_transaction_ends_in_all_its_partitions(world: World, commit: bool) -> None:
    shard = await world.lead()
    producer = await opened(shard)
    assert await shard.end_transaction("pay", producer, commit=commit) == 0
    prepared = State.PREPARE_COMMIT if commit else State.PREPARE_ABORT
    assert state_of(shard) is prepared
    await pass_time(1)
    assert world.partitions.sent == [(A, producer, commit), (B, producer, commit)]
    complete = State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT
    assert state_of(shard) is complete
    assert await shard.end_transaction("pay", producer, commit=commit) == 0, "asked again"
    states = [found.state for _, found in world.log.states() if found is not None]
    assert states == [State.EMPTY, State.ONGOING, prepared, complete]


async def test_no_marker_before_the_decision_is_in_the_log(world: World) -> None:
    shard = await world.lead()
    producer = await opened(shard)
    for fate in ("refused", "in doubt"):
        world.log.fate = lambda fate=fate: fate  # type: ignore[misc]
        code = await shard.end_transaction("pay", producer, commit=True)
        assert code == errors_pb2.COORDINATOR_NOT_AVAILABLE
        await pass_time(5)
        assert world.partitions.sent == []
        assert state_of(shard) is State.ONGOING


async def test_whoever_takes_over_completes_what_is_decided(world: World) -> None:
    shard = await world.lead()
    producer = await opened(shard)
    world.partitions.away = {B}
    assert await shard.end_transaction("pay", producer, commit=True) == 0
    await pass_time(1)
    assert world.partitions.sent == [(A, producer, True)]

    shard = await world.lead()
    world.partitions.away = set()
    code = await shard.end_transaction("pay", producer, commit=False)
    assert code == errors_pb2.INVALID_TXN_STATE
    await pass_time(5)
    assert set(world.partitions.sent) == {(A, producer, True), (B, producer, True)}
    assert state_of(shard) is State.COMPLETE_COMMIT


async def test_a_decision_in_doubt_holds_for_whoever_takes_over(world: World) -> None:
    shard = await world.lead()
    producer = await opened(shard)
    world.log.fate = lambda: "in doubt"
    assert await shard.end_transaction("pay", producer, commit=True)
    world.log.fate = lambda: "taken"
    shard = await world.lead()
    await pass_time(1)
    assert await shard.end_transaction("pay", producer, commit=True) == 0
    assert {committed for _, _, committed in world.partitions.sent} == {True}


async def test_an_open_transaction_goes_on_with_the_next_coordinator(world: World) -> None:
    producer = await opened(await world.lead())
    shard = await world.lead()
    assert shard.verify("pay", producer, {A}) == {A: 0}
    assert await shard.end_transaction("pay", producer, commit=True) == 0


async def test_a_producer_goes_on_once_the_markers_are_written(world: World) -> None:
    """Whether the log says that its transaction is complete or not: that is tried until it does."""
    shard = await world.lead()
    producer = await opened(shard)
    assert await shard.end_transaction("pay", producer, commit=True) == 0
    world.log.fate = lambda: "refused"
    await pass_time(10)
    assert state_of(shard) is State.COMPLETE_COMMIT
    assert world.last_state("pay") is State.PREPARE_COMMIT
    world.log.fate = lambda: "taken"
    await pass_time(1)
    assert world.last_state("pay") is State.COMPLETE_COMMIT


async def test_a_producer_that_goes_on_saves_the_log_a_record(world: World) -> None:
    shard = await world.lead()
    producer = await opened(shard)
    for _ in range(2):
        assert await shard.end_transaction("pay", producer, commit=True) == 0
        assert await shard.add_partitions("pay", producer, {A}) == 0
    states = [found.state for _, found in world.log.states() if found is not None]
    assert states[1:] == 2 * [State.ONGOING, State.PREPARE_COMMIT] + [State.ONGOING]


async def test_a_late_completion_does_not_undo_what_follows(world: World) -> None:
    shard = await world.lead()
    producer = await opened(shard)
    assert await shard.end_transaction("pay", producer, commit=True) == 0
    world.log.fate = lambda: "refused"
    await pass_time(1)
    world.log.fate = lambda: "taken"
    assert await shard.add_partitions("pay", producer, {A}) == 0
    await pass_time(60)
    assert state_of(shard) is State.ONGOING
    assert world.last_state("pay") is State.ONGOING


async def test_whoever_takes_over_sends_markers_again_if_nothing_followed(world: World) -> None:
    shard = await world.lead()
    producer = await opened(shard)
    assert await shard.end_transaction("pay", producer, commit=True) == 0
    world.log.fate = lambda: "refused"
    await pass_time(1)
    world.log.fate = lambda: "taken"
    shard = await world.lead()
    await pass_time(1)
    assert state_of(shard) is State.COMPLETE_COMMIT
    assert world.partitions.sent == 2 * [(A, producer, True), (B, producer, True)]


async def test_while_something_is_written_others_are_to_come_again(world: World) -> None:
    shard = await world.lead()
    producer = await shard.init_producer("pay", MINUTE_MS, None)
    adding = asyncio.create_task(shard.add_partitions("pay", producer, {A}))
    await asyncio.sleep(0)
    concurrent = errors_pb2.CONCURRENT_TRANSACTIONS
    assert await shard.add_partitions("pay", producer, {B}) == concurrent
    assert await shard.end_transaction("pay", producer, commit=True) == concurrent
    with pytest.raises(KafkaError) as refused:
        await shard.init_producer("pay", MINUTE_MS, None)
    assert refused.value.code == concurrent
    stranger = ProducerEpoch(producer.producer_id, 9)
    code = await shard.end_transaction("pay", stranger, commit=True)
    assert code == errors_pb2.PRODUCER_FENCED, "whatever is being written"
    assert await adding == 0


async def test_a_producer_that_goes_on_waits_for_its_transaction_before(world: World) -> None:
    shard = await world.lead()
    producer = await opened(shard)
    assert await shard.end_transaction("pay", producer, commit=True) == 0
    assert await shard.add_partitions("pay", producer, {A}) == 0, "no round trip in between"
    world.partitions.pause_s = lambda: 0.8
    assert await shard.end_transaction("pay", producer, commit=True) == 0
    assert await shard.add_partitions("pay", producer, {A}) == 0, "nor though markers take long"
    world.partitions.away = {A}
    assert await shard.end_transaction("pay", producer, commit=True) == 0
    code = await shard.add_partitions("pay", producer, {A})
    assert code == errors_pb2.CONCURRENT_TRANSACTIONS, "but not for ever"


async def test_whoever_waits_is_told_at_once_that_another_broker_leads(world: World) -> None:
    shard = await world.lead()
    producer = await opened(shard)
    world.partitions.away = {A}
    assert await shard.end_transaction("pay", producer, commit=True) == 0
    going_on = asyncio.create_task(shard.add_partitions("pay", producer, {A}))
    await pass_time(0.1)
    shard.end(errors_pb2.NOT_COORDINATOR)
    await pass_time(0.001)
    assert going_on.done()
    assert await going_on == errors_pb2.NOT_COORDINATOR


async def test_after_a_wait_nothing_is_told_from_memory_that_another_broker_may_have_changed(
    world: World,
) -> None:
    shard = await world.lead()
    producer = await opened(shard)
    world.partitions.pause_s = lambda: 0.3
    assert await shard.end_transaction("pay", producer, commit=True) == 0
    going_on = asyncio.create_task(shard.add_partitions("pay", producer, {A}))
    await pass_time(0.1)
    world.led_log.has_valid_lease = False
    written = len(world.log.batches)
    assert await going_on == errors_pb2.NOT_COORDINATOR
    assert len(world.log.batches) == written


async def test_what_is_decided_is_written_though_nobody_waits_for_it(world: World) -> None:
    shard = await world.lead()
    producer = await opened(shard)
    gone = asyncio.create_task(shard.end_transaction("pay", producer, commit=True))
    await pass_time(0.001)
    gone.cancel()
    await pass_time(1)
    assert state_of(shard) is State.COMPLETE_COMMIT


async def test_a_newer_producer_ends_what_is_open_and_shuts_the_older_out(world: World) -> None:
    shard = await world.lead()
    old = await opened(shard)
    with pytest.raises(KafkaError) as refused:
        await shard.init_producer("pay", MINUTE_MS, None)
    assert refused.value.code == errors_pb2.CONCURRENT_TRANSACTIONS
    new = await shard.init_producer("pay", MINUTE_MS, None)
    assert new.producer_id == old.producer_id
    assert new.epoch > old.epoch
    assert {committed for _, _, committed in world.partitions.sent} == {False}
    assert await shard.add_partitions("pay", old, {A}) == errors_pb2.PRODUCER_FENCED


async def test_what_is_open_for_too_long_is_aborted(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    shard = await world.lead()
    producer = await opened(shard)
    await pass_time(59)
    assert await shard.abort_overdue() == 0
    assert state_of(shard) is State.ONGOING
    await pass_time(2)
    assert await shard.abort_overdue() == 1
    assert await shard.abort_overdue() == 0
    await pass_time(1)
    assert state_of(shard) is State.COMPLETE_ABORT
    code = await shard.end_transaction("pay", producer, commit=True)
    assert code == errors_pb2.PRODUCER_FENCED
    assert "transaction of pay, open for 61" in caplog.text


async def test_time_runs_out_whoever_coordinates(world: World) -> None:
    await opened(await world.lead())
    await pass_time(30)
    shard = await world.lead()
    assert await shard.abort_overdue() == 0
    await pass_time(31)
    assert await shard.abort_overdue() == 1
    await pass_time(1)
    assert state_of(shard) is State.COMPLETE_ABORT


async def test_ids_that_nobody_uses_are_forgotten_for_good(world: World) -> None:
    shard = await world.lead()
    await shard.init_producer("idle", MINUTE_MS, None)
    await opened(shard, "open")
    await pass_time(100)
    await shard.forget_expired(100_000)
    assert [name for name, _ in shard] == ["open"]
    assert [name for name, _ in await world.lead()] == ["open"]
    assert world.log.states()[-1] == ("idle", None)


async def test_nothing_is_done_after_the_leadership_has_ended(world: World) -> None:
    shard = await world.lead()
    producer = await opened(shard)
    world.partitions.away = {A, B}
    assert await shard.end_transaction("pay", producer, commit=True) == 0
    shard.end(errors_pb2.NOT_COORDINATOR)
    world.partitions.away = set()
    written = len(world.log.batches)
    await pass_time(60)
    assert (len(world.log.batches), world.partitions.sent) == (written, [])
    code = await shard.end_transaction("pay", producer, commit=True)
    assert code == errors_pb2.NOT_COORDINATOR


async def test_a_coordinator_that_was_replaced_leaves_the_transaction_alone(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    shard = await world.lead()
    producer = await opened(shard)
    world.partitions[A].coordinator_epochs[producer.producer_id] = 7
    assert await shard.end_transaction("pay", producer, commit=True) == 0
    await pass_time(60)
    assert state_of(shard) is State.PREPARE_COMMIT
    assert "pay is not ended here" in caplog.text


async def test_records_of_other_releases_are_passed_over(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    odd = [LogRecord(b"\0\x63", b"value"), LogRecord(log_format.encode_key("pay"), b"\0\x63")]
    world.log.batches = [odd]
    shard = await world.lead()
    assert list(shard) == []
    assert "a record at offset 0 is passed over: key of version 99" in caplog.text
    assert "a record at offset 0 is passed over: transaction of version 99" in caplog.text


async def test_an_operator_aborts_what_is_open_and_fences_its_producer(world: World) -> None:
    shard = await world.lead()
    producer = await opened(shard)
    assert await shard.abort("pay") == producer
    await pass_time(1)
    fenced = ProducerEpoch(producer.producer_id, producer.epoch + 1)
    assert world.partitions.sent == [(A, fenced, False), (B, fenced, False)]
    assert state_of(shard) is State.COMPLETE_ABORT
    code = await shard.end_transaction("pay", producer, commit=True)
    assert code == errors_pb2.PRODUCER_FENCED


@pytest.mark.parametrize(
    ("state", "code"),
    [
        (None, errors_pb2.TRANSACTIONAL_ID_NOT_FOUND),
        (State.EMPTY, errors_pb2.INVALID_TXN_STATE),
        (State.PREPARE_COMMIT, errors_pb2.CONCURRENT_TRANSACTIONS),
        (State.COMPLETE_COMMIT, errors_pb2.INVALID_TXN_STATE),
    ],
)
async def test_an_operator_aborts_nothing_else(
    world: World, state: TransactionState | None, code: int
) -> None:
    shard = await world.lead()
    if state is State.EMPTY:
        await shard.init_producer("pay", MINUTE_MS, None)
    elif state is not None:
        producer = await opened(shard)
        world.partitions.away = {A} if state is State.PREPARE_COMMIT else set()
        assert await shard.end_transaction("pay", producer, commit=True) == 0
        await pass_time(1)
    assert state_of(shard) is state
    written = len(world.log.batches)
    with pytest.raises(KafkaError, match="'pay' was not aborted") as why:
        await shard.abort("pay")
    assert why.value.code == code
    assert len(world.log.batches) == written
