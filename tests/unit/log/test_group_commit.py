"""Who commits with an fsync: the event loop while that is quick and little, else a thread."""

import asyncio
import random
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from quorate.broker.common.errors import KafkaError
from quorate.broker.log import PartitionLog
from quorate.broker.log.segments.segment import Segment
from quorate.broker.log.writing import group_commit
from quorate.broker.log.writing.group_commit import LITTLE_BATCHES, LITTLE_BYTES, DiskPace
from quorate.broker.log.writing.journal import Journal
from quorate.broker.log.writing.write_operations import SegmentRoll, WriteOperation
from tests.support.log_stores import EPOCH, OpenStore, batch, everything, opened


class Committers:
    """Where groups were committed, and that one thread at a time has the journal."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.counts: Counter[str] = Counter()
        self.thread_may_go_on = threading.Event()
        self.thread_may_go_on.set()
        self._journal = threading.Lock()
        perform = Journal.perform

        def noted(journal: Journal, group: Sequence[WriteOperation]) -> Segment:
            assert self._journal.acquire(blocking=False), "two threads have the journal"
            try:
                name = threading.current_thread().name
                self.counts[name] += 1
                assert name != "log-writer" or self.thread_may_go_on.wait(30)
                return perform(journal, group)
            finally:
                self._journal.release()

        patch.setattr(Journal, "perform", noted)

    async def until_by_the_loop(self, store: OpenStore) -> PartitionLog:
        """Return a new log with a flushed batch, after the thread has given the journal back."""
        log = store.create("first")
        while not self.by_the_loop:
            log.append_as_leader(batch(), EPOCH)
            await store.until_flushed(log)
        self.counts.clear()
        store.flushes.clear()
        return log

    @property
    def by_the_loop(self) -> int:
        return self.counts[threading.current_thread().name]

    @property
    def by_the_thread(self) -> int:
        return self.counts["log-writer"]


@pytest.fixture
def committers(monkeypatch: pytest.MonkeyPatch) -> Committers:
    return Committers(monkeypatch)


@pytest.fixture
def quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the disk of the tests takes, it counts as quick."""
    monkeypatch.setattr(group_commit, "QUICK_S", 3600.0)


def test_the_loop_waits_for_a_quick_disk_again_at_once() -> None:
    pace = DiskPace()
    assert pace.may_wait(0.0)
    pace.waited(0.001, 5.0)
    assert pace.may_wait(5.0)


def test_long_waits_are_one_percent_of_the_loops_time() -> None:
    pace = DiskPace()
    pace.waited(0.501, 10.0)
    assert not pace.may_wait(59.9)
    assert pace.may_wait(60.0)
    pace.waited(0.001, 60.0)
    assert pace.may_wait(60.0)


@pytest.mark.usefixtures("quick_disk")
async def test_the_batches_of_a_turn_are_one_commit_by_the_loop(
    tmp_path: Path, committers: Committers
) -> None:
    async with opened(tmp_path) as store:
        logs = [store.create(str(number)) for number in range(4)]
        await committers.until_by_the_loop(store)
        for log in logs:
            log.append_as_leader(batch(), EPOCH)
            log.append_as_leader(batch(seed=1), EPOCH)
        await store.until_flushed(*logs)
        assert committers.by_the_loop == committers.counts.total() == 1
        assert store.flushes == [[(log.topic, 2) for log in logs]]


@pytest.mark.usefixtures("quick_disk")
@pytest.mark.parametrize(
    ("count", "size"), [(LITTLE_BATCHES + 1, 100), (2, LITTLE_BYTES // 2 + 100)]
)
async def test_many_and_large_batches_go_to_the_thread(
    tmp_path: Path, committers: Committers, count: int, size: int
) -> None:
    async with opened(tmp_path) as store:
        log = await committers.until_by_the_loop(store)
        for seed in range(count):
            log.append_as_leader(batch(size=size, seed=seed), EPOCH)
        await store.until_flushed(log)
        assert not committers.by_the_loop


@pytest.mark.usefixtures("quick_disk")
async def test_operations_that_take_long_go_to_the_thread(
    tmp_path: Path, committers: Committers
) -> None:
    async with opened(tmp_path) as store:
        log = await committers.until_by_the_loop(store)
        await log.truncate_to(0)
        await store.store.delete(log.tip)
        assert committers.by_the_thread == committers.counts.total() == 2


async def test_a_slow_disk_is_left_to_the_thread(
    tmp_path: Path, committers: Committers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_commit, "QUICK_S", -3600.0)
    async with opened(tmp_path) as store:
        log = await committers.until_by_the_loop(store)
        for seed in range(4):
            log.append_as_leader(batch(seed=seed), EPOCH)
            await store.until_flushed(log)
        assert not committers.by_the_loop


@pytest.mark.usefixtures("quick_disk")
async def test_the_loop_commits_nothing_while_the_thread_has_the_journal(
    tmp_path: Path, committers: Committers
) -> None:
    async with opened(tmp_path) as store:
        log = await committers.until_by_the_loop(store)
        committers.thread_may_go_on.clear()
        rolled = store.store.writer.submit(SegmentRoll())
        while not committers.by_the_thread:
            await asyncio.sleep(0)
        log.append_as_leader(batch(), EPOCH)
        for _ in range(5):
            await asyncio.sleep(0)
        assert not committers.by_the_loop
        committers.thread_may_go_on.set()
        await store.until_flushed(log)
        assert rolled.done()


@pytest.mark.usefixtures("quick_disk")
async def test_loop_and_thread_take_turns_and_keep_the_order(
    tmp_path: Path, committers: Committers
) -> None:
    draws = random.Random(1)
    async with opened(tmp_path) as store:
        logs = [store.create(str(number)) for number in range(3)]
        for seed in range(200):
            log = draws.choice(logs)
            many = draws.random() < 0.2
            for _ in range(LITTLE_BATCHES + 1 if many else 1):
                log.append_as_leader(batch(seed=seed), EPOCH)
            if draws.random() < 0.6:
                await store.until_flushed(*draws.sample(logs, draws.randint(1, 3)))
        await store.until_flushed(*logs)
        assert committers.by_the_loop
        assert committers.by_the_thread
        written = [everything(log) for log in logs]
    async with opened(tmp_path) as again:
        assert [everything(again.log(str(number))) for number in range(3)] == written


@pytest.mark.usefixtures("quick_disk")
async def test_a_disk_that_fails_under_the_loop_is_written_no_more(
    tmp_path: Path, committers: Committers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_segment: Segment, _batches: object) -> None:
        log.append_as_leader(batch(seed=1), EPOCH)
        raise OSError(5, "input/output error")

    async with opened(tmp_path) as store:
        log = await committers.until_by_the_loop(store)
        flushed = log.flushed_offset
        monkeypatch.setattr(Segment, "append", fail)
        log.append_as_leader(batch(), EPOCH)
        assert isinstance(await store.until_failed(), OSError)
        with pytest.raises(KafkaError, match="input/output error"):
            log.append_as_leader(batch(), EPOCH)
    assert committers.by_the_loop == committers.counts.total() == 1
    assert log.flushed_offset == flushed
