"""Idempotent producers of a log that is cut, begun later, closed and opened again."""

import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from quorate.broker.common.errors import KafkaError
from quorate.broker.log import PartitionLog
from quorate.broker.log.checkpoints.store_table import StoreTable
from quorate.broker.log.options import Flush
from quorate.common.types import LeaderEpoch
from quorate_proto.v1 import errors_pb2
from tests.support.log_stores import EPOCH, OpenStore, batch, everything, opened

ME = 7


def sent(sequence: int, count: int = 1, *, epoch: int = 0) -> bytes:
    return batch(count, 40, producer=(ME, epoch, sequence))


def append(log: PartitionLog, *batches: bytes) -> tuple[int, int]:
    """First and last offset, as the producer is told."""
    appended = log.append_as_leader(b"".join(batches), EPOCH)
    return appended.base_offset, appended.last_offset


def code_of(log: PartitionLog, *batches: bytes) -> int:
    before = log.log_end_offset
    with pytest.raises(KafkaError, match="t-0") as refused:
        append(log, *batches)
    assert log.log_end_offset == before
    return refused.value.code


async def written(store: OpenStore, sequences: range) -> PartitionLog:
    """A log with one batch of one record for each; offsets are sequences."""
    log = store.create()
    for sequence in sequences:
        append(log, sent(sequence))
    await store.until_flushed(log)
    return log


async def test_what_was_appended_before_is_answered_and_not_appended(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        log = store.create()
        log.append_as_leader(batch(10), EPOCH)
        assert append(log, sent(0, 3)) == (10, 12)
        log.append_as_leader(batch(10), EPOCH)
        before = everything(log)
        assert append(log, sent(0, 3)) == (10, 12)
        assert everything(log) == before
        assert append(log, sent(0, 3), sent(3, 2)) == (10, 24)
        assert code_of(log, sent(5), sent(7)) == errors_pb2.OUT_OF_ORDER_SEQUENCE_NUMBER


async def truncate(log: PartitionLog) -> None:
    await log.truncate_to(7)


async def begin_later(log: PartitionLog) -> None:
    await log.start_at(7)


async def begin_at_the_end(log: PartitionLog) -> None:
    await log.start_at(9)


async def begin_later_twice(log: PartitionLog) -> None:
    await log.start_at(3)
    await log.start_at(7)


async def begin_later_and_truncate(log: PartitionLog) -> None:
    await log.start_at(6)
    await log.truncate_to(7)


async def nothing(_: PartitionLog) -> None:
    pass


@pytest.mark.parametrize("flush", ["sync", "os"])
@pytest.mark.parametrize(
    ("happens", "kept"),
    [
        (nothing, 9),
        (truncate, 7),
        (begin_later, 9),
        (begin_at_the_end, 9),
        (begin_later_twice, 9),
        (begin_later_and_truncate, 7),
    ],
)
async def test_producers_are_known_after_a_restart(
    tmp_path: Path, flush: Flush, happens: Callable[[PartitionLog], Awaitable[None]], kept: int
) -> None:
    async with opened(tmp_path, flush) as store:
        await happens(await written(store, range(9)))
    for _ in range(2):
        async with opened(tmp_path, flush) as store:
            log = store.log()
            for sequence in range(kept - 3, kept):
                assert append(log, sent(sequence)) == (sequence, sequence)
            assert code_of(log, sent(kept + 1)) == errors_pb2.OUT_OF_ORDER_SEQUENCE_NUMBER
            assert log.log_end_offset == kept


async def test_producers_of_a_log_that_starts_over_are_unknown(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        log = await written(store, range(9))
        await log.start_at(5)
        await log.truncate_fully_and_start_at(50)
        assert append(log, sent(33)) == (50, 50)
        await log.truncate_fully_and_start_at(60)
    async with opened(tmp_path) as store:
        assert append(store.log(), sent(12)) == (60, 60)


async def test_producers_of_a_deleted_log_are_unknown(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        log = await written(store, range(9))
        await log.start_at(5)
        await store.store.delete(log.tip)
        assert append(store.create(), sent(33)) == (0, 0)
    async with opened(tmp_path) as store:
        assert code_of(store.log(), sent(35)) == errors_pb2.OUT_OF_ORDER_SEQUENCE_NUMBER
    table = StoreTable.open(tmp_path)
    assert table.producers() == {}
    table.close()


async def test_a_follower_that_comes_to_lead_knows_what_it_holds(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        leader, follower = store.create("t", 1), store.create("t", 0)
        for sequence in (0, 2, 4):
            append(leader, sent(sequence, 2))
        follower.append_as_follower(everything(leader))
        assert append(follower, sent(2, 2)) == (2, 3)
        await follower.truncate_to(4)
        assert code_of(follower, sent(6)) == errors_pb2.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert follower.append_as_leader(sent(4, 2), LeaderEpoch(1))[:2] == (4, 5)


async def test_who_expired_before_a_restart_is_unknown_after_it(tmp_path: Path) -> None:
    """All that was ever written may name more producers than there is memory for."""
    async with opened(tmp_path) as store:
        await written(store, range(9))
    (segment,) = tmp_path.glob("segment-*.mdb")
    written_s = segment.stat().st_mtime
    for silent_s, code in ((86_300, errors_pb2.OUT_OF_ORDER_SEQUENCE_NUMBER), (86_500, 0)):
        os.utime(segment, (written_s, written_s - silent_s))
        async with opened(tmp_path) as store:
            if code:
                assert code_of(store.log(), sent(33)) == code
            else:
                assert append(store.log(), sent(33)) == (9, 9)


async def test_the_silent_are_forgotten_in_every_log(tmp_path: Path) -> None:
    async with opened(tmp_path, producer_expiration_ms=100) as store:
        silent = [store.create("silent", partition) for partition in range(3)]
        busy = store.create("t")
        for log in (*silent, busy):
            append(log, sent(0))
        await store.store.expire_producers(1000)
        append(busy, sent(1))
        await store.store.expire_producers(1100)
        assert [len(log.producers) for log in (*silent, busy)] == [0, 0, 0, 1]
