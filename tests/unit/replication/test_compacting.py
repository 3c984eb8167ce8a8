"""Which logs a broker cleans, when, and what becomes of those that cannot be."""

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from quorate.broker.log import PartitionLog
from quorate.broker.log.batches.admission import AppendOrigin
from quorate.broker.log.batches.control_batches import EndMarker, encode_marker
from quorate.broker.log.cleaning.cleaner import CleanerWorker
from quorate.broker.log.cleaning.cleaner_process import CleanerGone
from quorate.broker.log.compaction.log_selection import CompactionOptions
from quorate.broker.log.directories.log_directories import LogDirectories
from quorate.broker.log.segments.damage import DamagedBatch
from quorate.broker.log.segments.segment import Segment
from quorate.broker.metrics import compaction_metrics as figures
from quorate.broker.metrics.compaction_metrics import compaction_samples
from quorate.broker.replication.hosting.partition_limits import CleanerLimits
from quorate.broker.replication.maintenance.compaction_task import CompactionTask
from quorate.common.types import TopicIdPartition, TopicPartition
from tests.support.fixed_limits import FixedLimits
from tests.support.log_cleaning import WorkerInside, seal
from tests.support.log_stores import EPOCH, OpenStore, everything, opened
from tests.support.read_records import read_records
from tests.support.record_batches import TRANSACTIONAL, Record, assemble, encode_batch

NOW_MS = 10**13
HOUR_MS = 3_600_000


class Hosts:
    """A broker's replicas, of which the high watermark is all that matters here."""

    def __init__(self, opened_store: OpenStore, clock: "Broker") -> None:
        self._opened = opened_store
        self.clock = SimpleNamespace(now_ms=lambda: 0, wall_clock_ms=lambda: clock.now_ms)
        self.store = LogDirectories.alone(opened_store.store)
        self.high_watermark = 10**9

    def get(self, tip: TopicIdPartition) -> object:
        return self.store.logs.get(tip)

    def __iter__(self) -> Iterator[object]:
        for log in self.store.logs.values():
            replica = SimpleNamespace(high_watermark=self.high_watermark)
            tp = TopicPartition(log.topic, log.tip.partition)
            stable = log.stable_offset(self.high_watermark)
            yield SimpleNamespace(
                tip=log.tip, tp=tp, log=log, replica=replica, last_stable_offset=stable
            )


class Broker:
    """A store with compacted logs, and what cleans them."""

    def __init__(self, opened_store: OpenStore) -> None:
        self.opened = opened_store
        self.hosts = Hosts(opened_store, self)
        self.limits = FixedLimits(compacted=CompactionOptions())
        self.now_ms = NOW_MS
        self.started = 0
        self.start_worker: Callable[[], CleanerWorker] = WorkerInside
        self.compacting = CompactionTask(cast("Any", self.hosts), self.limits, self._start)

    def _start(self) -> CleanerWorker:
        self.started += 1
        return self.start_worker()

    async def log_of(self, topic: str, *keys: bytes) -> PartitionLog:
        """A sealed log with a batch for each key, an hour old."""
        log = self.opened.create(topic)
        self.put(log, *keys)
        await seal(self.opened)
        return log

    def put(self, log: PartitionLog, *keys: bytes) -> None:
        for key in keys:
            records = [Record(0, NOW_MS - HOUR_MS, key)]
            log.append_as_leader(encode_batch(records), EPOCH)


def keys(log: PartitionLog) -> bytes:
    return b"".join(record.key or b"" for record in read_records(everything(log)))


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with opened(tmp_path) as store:
        made = Broker(store)
        yield made
        await made.compacting.close()


async def test_all_that_is_dirty_is_cleaned_in_one_run(broker: Broker) -> None:
    one = await broker.log_of("one", b"a", b"a", b"b")
    two = await broker.log_of("two", b"c", b"c")
    await broker.compacting.run()
    assert (keys(one), keys(two)) == (b"ab", b"c")
    assert (one.cleaned_offset, two.cleaned_offset) == (3, 2)
    assert broker.started == 1, "one process for all of them"
    await broker.compacting.run()
    assert broker.started == 1, "there is nothing to clean"


async def test_a_topic_that_is_not_compacted_is_left_alone(broker: Broker) -> None:
    broker.limits.compacted = None
    log = await broker.log_of("one", b"a", b"a")
    await broker.compacting.run()
    assert keys(log) == b"aa"


async def test_a_broker_whose_cleaner_is_off_cleans_nothing(broker: Broker) -> None:
    broker.limits.cleaning = CleanerLimits(is_enabled=False)
    log = await broker.log_of("one", b"a", b"a")
    await broker.compacting.run()
    assert keys(log) == b"aa"


async def test_only_what_is_committed_is_cleaned(broker: Broker) -> None:
    log = await broker.log_of("one", b"a", b"a", b"a")
    broker.hosts.high_watermark = 2
    await broker.compacting.run()
    assert keys(log) == b"aa"
    assert log.cleaned_offset == 2


async def test_kip_98_what_is_cleaned_ends_before_a_transaction_that_is_not_over(
    broker: Broker,
) -> None:
    log = broker.opened.create("one")
    broker.put(log, b"a", b"a")
    in_transaction = encode_batch(
        [Record(0, NOW_MS - HOUR_MS, b"a", b"never")],
        attributes=TRANSACTIONAL,
        producer=(7, 0, 0),
    )
    log.append_as_leader(in_transaction, EPOCH, AppendOrigin.TRANSACTIONAL_CLIENT)
    broker.put(log, b"a")
    await seal(broker.opened)
    await broker.compacting.run()
    assert (log.cleaned_offset, keys(log)) == (2, b"aaa")
    marker = encode_marker(EndMarker(7, 0, False, 0), NOW_MS - HOUR_MS)
    log.append_as_leader(marker, EPOCH, AppendOrigin.MARKERS)
    broker.put(log, b"b")
    await seal(broker.opened)
    log.transactions.settle(log.log_end_offset)
    assert len(log.transactions.aborted(0, log.log_end_offset)) == 1
    log.producers.clear()
    await broker.compacting.run()
    values = [one.value for one in read_records(everything(log)) if one.key in (b"a", b"b")]
    assert values == [b"value", b"value"], "one of each key, and nothing that was aborted"
    assert log.transactions.aborted(0, log.log_end_offset) == [], "it has no records any more"


async def test_what_is_too_young_waits(broker: Broker) -> None:
    broker.limits.compacted = CompactionOptions(min_compaction_lag_ms=HOUR_MS + 1)
    log = await broker.log_of("one", b"a", b"a")
    await broker.compacting.run()
    assert keys(log) == b"aa"
    broker.now_ms += 1
    await broker.compacting.run()
    assert keys(log) == b"a"


async def test_a_little_dirt_waits_until_it_is_overdue(broker: Broker) -> None:
    log = await broker.log_of("one", b"a", b"b", b"c")
    await broker.compacting.run()
    broker.put(log, b"a")
    await seal(broker.opened)
    await broker.compacting.run()
    assert keys(log) == b"abca"
    broker.limits.compacted = CompactionOptions(max_compaction_lag_ms=HOUR_MS - 1)
    await broker.compacting.run()
    assert keys(log) == b"bca"


async def test_what_is_overdue_in_the_segment_that_is_written_is_sealed(broker: Broker) -> None:
    broker.limits.compacted = CompactionOptions(max_compaction_lag_ms=HOUR_MS - 1)
    log = broker.opened.create("one")
    broker.put(log, b"a", b"a")
    await broker.opened.until_flushed(log)
    await broker.compacting.run()
    await broker.opened.store.housekeeping.idle()
    await broker.compacting.run()
    assert keys(log) == b"a"


@pytest.mark.parametrize(
    ("ends", "kept"),
    [
        ({"segment_ms": HOUR_MS}, b"a"),
        ({"segment_ms": HOUR_MS + 1}, b"aa"),
        ({"segment_bytes": 100}, b"a"),
        ({"segment_bytes": 1000}, b"aa"),
        ({"segment_ms": 1, "segment_bytes": 1, "min_compaction_lag_ms": HOUR_MS + 1}, b"aa"),
    ],
)
async def test_the_segment_that_is_written_ends_when_kafkas_would(
    broker: Broker, ends: dict[str, int], kept: bytes
) -> None:
    broker.limits.compacted = CompactionOptions(**ends)
    log = broker.opened.create("one")
    broker.put(log, b"a", b"a")
    await broker.opened.until_flushed(log)
    await broker.compacting.run()
    await broker.opened.store.housekeeping.idle()
    await broker.compacting.run()
    assert keys(log) == kept


async def test_what_a_cleaning_has_written_is_sealed_for_the_next_one(broker: Broker) -> None:
    """With memory for the keys of one batch alone, so that there is a next one at once."""
    broker.limits.compacted = CompactionOptions(
        min_cleanable_dirty_ratio=0, max_compaction_lag_ms=HOUR_MS - 1
    )
    broker.limits.cleaning = CleanerLimits(dedupe_buffer_bytes=0)
    log = await broker.log_of("one", b"a", b"a", b"a", b"a", b"b")
    for _ in range(100):  # What is copied forward meanwhile waits for a seal again.
        if log.cleaned_offset == 5:
            break
        await broker.compacting.run()
        await broker.opened.store.relocator.idle()
        await broker.opened.store.housekeeping.idle()
    assert log.cleaned_offset == 5
    assert keys(log) == b"ab"


async def test_an_uncleanable_log_is_given_up_and_told_of(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    bad = broker.opened.create("bad")
    bad.append_as_leader(assemble(b"\xff", base_offset=0, last_delta=0, count=1), EPOCH)
    good = await broker.log_of("good", b"a", b"a")
    for _ in range(2):
        await broker.compacting.run()
    assert keys(good) == b"a"
    told = [one.message for one in caplog.records if "cannot be compacted" in one.message]
    assert len(told) == 1
    assert told[0].startswith("bad-0 cannot be compacted: batch at offset 0")
    samples = {
        sample.family: sample.value
        for sample in compaction_samples(broker.compacting.figures, 5000)
    }
    assert samples[figures.UNCLEANABLE] == 1
    assert samples[figures.MAX_DIRTY_RATIO] == 1.0
    assert samples[figures.SINCE_LAST_RUN] == 5.0
    assert cast("float", samples[figures.READ_BYTES]) > 0
    await broker.opened.store.delete(bad.tip)
    await broker.compacting.run()
    assert broker.compacting.figures.uncleanable == {}


async def test_a_process_that_dies_is_tried_again_in_the_next_run(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    log = await broker.log_of("one", b"a", b"a")

    def refuse() -> CleanerWorker:
        raise CleanerGone("no memory")

    broker.start_worker = refuse
    await broker.compacting.run()
    assert "one-0 was not compacted to the end: no memory" in caplog.text
    assert keys(log) == b"aa"
    broker.start_worker = WorkerInside
    await broker.compacting.run()
    assert keys(log) == b"a"


async def test_a_damaged_batch_is_told_of(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = await broker.log_of("one", b"a", b"a")
    damaged = DamagedBatch(Path("segment"), log.number, 0, "its checksum is wrong")
    told: list[object] = []
    broker.opened.on_damaged = lambda *what: told.append(what)

    def refuse(*_: object) -> None:
        raise damaged

    monkeypatch.setattr(Segment, "read", refuse)
    await broker.compacting.run()
    assert told == [(log, damaged)]


async def test_reading_and_writing_keep_to_their_rate(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(
        "quorate.broker.replication.maintenance.compaction_task.asyncio.sleep", sleep
    )
    broker.limits.cleaning = CleanerLimits(io_max_bytes_per_second=100)
    log = await broker.log_of("one", b"a", b"a")
    before = log.size_bytes
    await broker.compacting.run()
    told = broker.compacting.figures
    assert told.read_bytes == 2 * before
    assert sum(slept) == pytest.approx((told.read_bytes + told.written_bytes) / 100)
