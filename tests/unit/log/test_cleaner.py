"""Cleaning the logs of a store: what is read of them after it, and after an end at any moment."""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from quorate.broker.log import PartitionLog
from quorate.broker.log.batches.record_batch import Batch, read_header
from quorate.broker.log.cleaning.cleaner import CleaningInterrupted, LogCleaner, UncleanableLog
from quorate.broker.log.cleaning.cleaner_messages import (
    BeginCleaning,
    CleanBatches,
    CleanerReply,
    CleanerRequest,
    KeysMapped,
    MapKeys,
    read_frame,
    write_frame,
)
from quorate.broker.log.cleaning.cleaner_process import MODULE, CleanerGone, CleanerProcess
from quorate.broker.log.compaction.log_cleaning import CleaningTask
from quorate.broker.log.compaction.offset_map import BYTES_PER_KEY
from quorate.broker.log.recovery.examination import examine
from quorate.broker.log.rewriting.rewriter import Rewrite
from quorate.broker.log.segments.damage import DamagedBatch
from quorate.broker.log.segments.segment import Segment
from tests.support.examples import examples
from tests.support.log_cleaning import DELETE_RETENTION_MS, WorkerInside, clean, no_pause, seal
from tests.support.log_stores import EPOCH, OpenStore, everything, opened
from tests.support.read_records import read_records
from tests.support.record_batches import Record, assemble, encode_batch

TASK = CleaningTask(
    dirty_from=0, pinned=frozenset(), now_ms=0, delete_retention_ms=0, key_bytes=1 << 20
)


def put(log: PartitionLog, *keys: bytes, value: bytes | None = b"value") -> None:
    """A batch of one record per key."""
    records = [Record(place, key=key, value=value) for place, key in enumerate(keys)]
    log.append_as_leader(encode_batch(records), EPOCH)


def keys_of(log: PartitionLog) -> list[tuple[int, bytes | None]]:
    return [(record.offset, record.key) for record in read_records(everything(log))]


async def test_of_each_key_the_newest_record_is_left(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        log, other = store.create("t", 0), store.create("t", 1)
        for log_of_both in (log, other):
            put(log_of_both, b"a", b"b")
            put(log_of_both, b"a")
            put(log_of_both, b"b", b"c")
        await seal(store)
        put(log, b"c")
        cleaned = await clean(store, log)
        assert cleaned.cleaned_to == 5
        assert cleaned.written_bytes < cleaned.replaced_bytes
        left = [(2, b"a"), (3, b"b"), (4, b"c"), (5, b"c")]
        assert keys_of(log) == left
        assert len(keys_of(other)) == 5
        assert log.read(1, 1, 6).next_offset == 2
    async with opened(tmp_path) as store:
        assert keys_of(store.log("t", 0)) == left
        assert store.log("t", 0).log_end_offset == 6
        assert len(keys_of(store.log("t", 1))) == 5


async def test_what_is_not_sealed_waits(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        log = store.create()
        put(log, b"a")
        await seal(store)
        put(log, b"a")
        await store.until_flushed(log)
        found = log.cleanable(log.log_end_offset, None)
        assert (found.dirty_from, found.end, found.clean_bytes) == (0, 1, 0)
        assert found.oldest_unsealed_ms == found.oldest_dirty_ms > 0
        await clean(store, log)
        assert len(keys_of(log)) == 2
        found = log.cleanable(log.log_end_offset, None)
        assert (found.dirty_from, found.dirty_bytes) == (1, 0)
        assert found.clean_bytes > 0


async def test_how_far_a_log_is_clean_is_remembered(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        log = store.create()
        put(log, b"a")
        put(log, b"b")
        await seal(store)
        await clean(store, log)
        assert log.cleaned_offset == 2
    async with opened(tmp_path) as store:
        log = store.log()
        assert log.cleaned_offset == 2
        await log.truncate_to(1)
        assert log.cleaned_offset == 1
    async with opened(tmp_path) as store:
        assert store.log().cleaned_offset == 1


async def test_with_little_memory_it_takes_several_rounds(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        log = store.create()
        for _ in range(2):
            for key in (b"a", b"b", b"c"):
                put(log, key)
        await seal(store)
        for end in (2, 4, 6):
            cleaned = await clean(store, log, key_bytes=2 * BYTES_PER_KEY)
            assert cleaned.cleaned_to == end
            await seal(store)
        assert [key for _, key in keys_of(log)] == [b"a", b"b", b"c"]


async def test_a_log_that_is_cut_meanwhile_is_left_alone(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        log = store.create()
        for _ in range(3):
            put(log, b"a")
        await seal(store)
        loop = asyncio.get_running_loop()

        def cut(request: CleanerRequest) -> None:
            if isinstance(request, CleanBatches):
                asyncio.run_coroutine_threadsafe(log.truncate_to(1), loop).result()

        with pytest.raises(CleaningInterrupted):
            await clean(store, log, start_worker=lambda: WorkerInside(cut))
        assert keys_of(log) == [(0, b"a")]


async def test_a_log_that_was_cut_and_went_on_meanwhile_is_left_alone(tmp_path: Path) -> None:
    """Though what is there now has the places and sizes of what was there before."""
    async with opened(tmp_path) as store:
        log = store.create()
        for key in (b"a", b"b", b"a"):
            put(log, key)
        await seal(store)
        loop = asyncio.get_running_loop()

        async def write_anew() -> None:
            await log.truncate_to(0)
            for key in (b"x", b"y", b"z"):
                put(log, key)
            await seal(store)

        def cut(request: CleanerRequest) -> None:
            if isinstance(request, CleanBatches):
                asyncio.run_coroutine_threadsafe(write_anew(), loop).result()

        with pytest.raises(CleaningInterrupted, match="cut"):
            await clean(store, log, start_worker=lambda: WorkerInside(cut))
        assert [key for _, key in keys_of(log)] == [b"x", b"y", b"z"]


async def test_a_segment_that_goes_while_it_is_read_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as store:
        log = store.create()
        put(log, b"a")
        put(log, b"a")
        await seal(store)
        read, refusals = Segment.read, iter([True, False])

        def read_once_gone(
            self: Segment, number: int, wanted: list[tuple[int, int]], *, wait: bool = True
        ) -> object:
            self.is_unlinked = next(refusals, False)
            if self.is_unlinked:
                raise DamagedBatch(self.path, number, 0, "it is not there")
            return read(self, number, wanted, wait=wait)

        monkeypatch.setattr(Segment, "read", read_once_gone)
        await clean(store, log)
        assert keys_of(log) == [(1, b"a")]


async def test_a_change_that_comes_too_late_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as store:
        log = store.create()
        put(log, b"a")
        put(log, b"a")
        await seal(store)
        rewrite, refusals = store.store.rewrite, iter([True, True])

        async def moved(rewrites: list[Rewrite]) -> list[bool]:
            return [False] if next(refusals, False) else await rewrite(rewrites)

        monkeypatch.setattr(store.store, "rewrite", moved)
        await clean(store, log)
        assert keys_of(log) == [(1, b"a")]


async def test_a_log_that_begins_inside_a_batch_is_cleaned_from_that_one_on(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path) as store:
        log = store.create()
        put(log, b"a", b"b", b"b", b"c")
        await seal(store)
        await log.start_at(1)
        await clean(store, log)
        assert keys_of(log) == [(0, b"a"), (2, b"b"), (3, b"c")]


async def test_batches_that_move_meanwhile_are_found_again(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        log = store.create()
        for _ in range(3):
            put(log, b"a")
        await seal(store)
        loop = asyncio.get_running_loop()

        async def copy_forward() -> None:
            old = log.placed(0, 1)
            data = everything(log)[: old[0].size]
            new = [Batch(read_header(data), memoryview(data))]
            assert await store.store.rewrite([Rewrite(log, old, new)]) == [True]
            await store.store.writer.roll()
            await store.store.housekeeping.idle()

        def move(request: CleanerRequest) -> None:
            if isinstance(request, CleanBatches):
                asyncio.run_coroutine_threadsafe(copy_forward(), loop).result()

        await clean(store, log, start_worker=lambda: WorkerInside(move))
        assert keys_of(log) == [(2, b"a")]


async def test_a_log_that_nobody_can_read_is_uncleanable(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        log = store.create()
        put(log, b"a")
        log.append_as_leader(assemble(b"\xff", base_offset=0, last_delta=0, count=1), EPOCH)
        await seal(store)
        with pytest.raises(UncleanableLog, match="offset 1"):
            await clean(store, log)


async def test_the_process_cleans_and_ends(tmp_path: Path) -> None:
    started: list[CleanerProcess] = []

    def start() -> CleanerProcess:
        started.append(CleanerProcess())
        return started[-1]

    async with opened(tmp_path) as store:
        log = store.create()
        put(log, b"a", b"b")
        put(log, b"a")
        await seal(store)
        await clean(store, log, start_worker=start)
        assert keys_of(log) == [(1, b"b"), (2, b"a")]
    (process,) = started
    assert not Path(f"/proc/{process.pid}").exists()


def test_a_process_that_dies_is_told_of() -> None:
    process = CleanerProcess()
    assert process.ask(BeginCleaning(TASK)) == KeysMapped(0, has_room=True)
    os.kill(process.pid, signal.SIGKILL)
    with pytest.raises(CleanerGone):
        process.ask(MapKeys(b""))
    process.close()


def test_the_process_ends_with_its_broker() -> None:
    """The end of its pipe is all it needs."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-m", MODULE], stdin=pipe, stdout=pipe) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        write_frame(process.stdin, BeginCleaning(TASK))
        assert read_frame(process.stdout, msgspec.msgpack.Decoder(CleanerReply)) == KeysMapped(
            0, True
        )
        process.stdin.close()
        assert process.wait(20) == 0


async def test_a_cleaner_starts_another_process_after_one_died(tmp_path: Path) -> None:
    deaths = iter([True, False])

    def start() -> WorkerInside:
        dies = next(deaths)

        def between(request: CleanerRequest) -> None:
            if dies:
                raise CleanerGone("killed")

        return WorkerInside(between)

    async with opened(tmp_path) as store:
        log = store.create()
        put(log, b"a")
        put(log, b"a")
        await seal(store)
        cleaner = LogCleaner(store.store, start)

        with pytest.raises(CleanerGone):
            await cleaner.clean(log, 2, TASK, no_pause)
        await cleaner.clean(log, 2, TASK, no_pause)
        await cleaner.close()
        assert keys_of(log) == [(1, b"a")]


_KEY = st.sampled_from([b"a", b"b", b"c"])
_PARTITION = st.integers(0, 1)
_STEP = st.one_of(
    st.tuples(st.just("put"), _PARTITION, st.lists(_KEY, min_size=1, max_size=3)),
    st.tuples(st.just("put"), _PARTITION, st.lists(_KEY, min_size=1, max_size=3)),
    st.tuples(st.just("delete"), _PARTITION, _KEY),
    st.tuples(st.just("clean"), _PARTITION, st.integers(1, 3)),
    st.tuples(st.just("crash in"), _PARTITION, st.integers(0, 4)),
    st.tuples(st.sampled_from(["seal", "crash", "wait"])),
)


class History:
    """Two logs, cleaned and crashed, against all that was put into them."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._put: list[list[Record]] = [[], []]
        self._clean_to = [0, 0]
        self._now_ms = 10**13
        self._crashes = 0

    async def run(self, steps: list[tuple[object, ...]]) -> None:
        remaining = iter([*steps, ("crash",)])
        for partition in range(2):
            async with opened(self._directory) as store:
                store.create("t", partition)
        for step in remaining:
            async with opened(self._directory, tail_bytes=300) as store:
                self._check(store)
                next_step: tuple[object, ...] | None = step
                while next_step is not None and not await self._perform(store, next_step):
                    self._check(store)
                    next_step = next(remaining, None)
        async with opened(self._directory) as store:
            self._check(store)
        assert examine(self._directory).problems == []

    async def _perform(self, store: OpenStore, step: tuple[object, ...]) -> bool:
        """Whether the store is to be opened again, in a copy of its folder."""
        match step:
            case ("put", int(partition), list(keys)):
                self._append(store, partition, [(key, b"%d" % len(keys)) for key in keys])
            case ("delete", int(partition), bytes(key)):
                self._append(store, partition, [(key, None)])
            case ("seal",):
                await seal(store)
            case ("wait",):
                self._now_ms += DELETE_RETENTION_MS
            case ("clean", int(partition), int(keys)):
                log = store.log("t", partition)
                try:
                    done = await clean(
                        store, log, now_ms=self._now_ms, key_bytes=keys * BYTES_PER_KEY
                    )
                except (
                    CleaningInterrupted
                ):  # By a copy forward, which waits for a seal: a later round's.
                    return False
                self._clean_to[partition] = max(self._clean_to[partition], done.cleaned_to)
            case ("crash in", int(partition), int(after)):
                await seal(store)
                await self._crash_in_a_cleaning(store, store.log("t", partition), after)
                return True
            case ("crash",):
                await store.until_flushed(*store.store.logs.values())
                await self._copy(store)
                return True
        return False

    def _append(
        self, store: OpenStore, partition: int, pairs: list[tuple[bytes, bytes | None]]
    ) -> None:
        put_before = self._put[partition]
        begin = len(put_before)
        records = [
            Record(begin + place, 10**12 + begin + place, key, value)
            for place, (key, value) in enumerate(pairs)
        ]
        put_before += records
        store.log("t", partition).append_as_leader(encode_batch(records), EPOCH)

    async def _crash_in_a_cleaning(self, store: OpenStore, log: PartitionLog, after: int) -> None:
        """Go on in a copy of the folder as it was after so many steps of a cleaning."""
        steps = 0

        async def count(size: int) -> None:
            nonlocal steps
            if steps == after:
                await self._copy(store)
            steps += 1

        with contextlib.suppress(CleaningInterrupted):  # As above; what was done until then counts.
            await clean(store, log, now_ms=self._now_ms, pause=count)
        if steps <= after:
            await self._copy(store)

    async def _copy(self, store: OpenStore) -> None:
        for _ in range(2):  # The one may have work for the other.
            await store.store.relocator.idle()
            await store.store.housekeeping.idle()
        self._crashes += 1
        copy = self._directory.with_name(f"after-crash-{self._crashes}")
        shutil.copytree(self._directory, copy)
        self._directory = copy

    def _check(self, store: OpenStore) -> None:
        for partition, put_in in enumerate(self._put):
            log = store.log("t", partition)
            assert (log.log_start_offset, log.log_end_offset) == (0, len(put_in))
            found = read_records(everything(log))
            assert [record for record in found if record != put_in[record.offset]] == []
            newest = {record.key: record for record in put_in}
            missing = [record for record in newest.values() if record not in found]
            assert [record for record in missing if record.value is not None] == []
            live = {key: value for key, value in _replayed(put_in).items() if value is not None}
            assert live == {k: v for k, v in _replayed(found).items() if v is not None}
            clean_to = self._clean_to[partition]
            keys = [record.key for record in found if record.offset < clean_to]
            assert len(keys) == len(set(keys))


def _replayed(records: list[Record]) -> dict[bytes | None, bytes | None]:
    """What a reader from the beginning takes every key to be."""
    return {record.key: record.value for record in records}


@settings(max_examples=examples(12), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(_STEP, max_size=20))
def test_whatever_happens_readers_find_the_newest_of_each_key(
    steps: list[tuple[object, ...]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(History(Path(folder) / "log").run(steps))
