"""Random histories of a store against a model of it: Python lists that forget nothing."""

import asyncio
import shutil
import tempfile
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from quorate.broker.log import LogManager, PartitionLog
from quorate.broker.log.batches.record_batch import Batch, patched, read_header
from quorate.broker.log.options import Flush
from quorate.broker.log.rewriting.rewriter import Rewrite
from quorate.common.types import LeaderEpoch
from tests.support.examples import examples
from tests.support.log_stores import OpenStore, batch, everything, opened

SEGMENT_BYTES = 96 << 10
"""A few large batches: most histories roll."""

_PARTITION = st.integers(0, 2)
_APPEND = st.tuples(
    st.just("append"), _PARTITION, st.integers(1, 4), st.sampled_from([10, 3000, 30_000, 300_000])
)
_TRUNCATE = st.tuples(st.just("truncate"), _PARTITION, st.floats(0, 1))
_AFRESH = st.tuples(st.just("afresh"), _PARTITION, st.integers(0, 50))
_BEGIN = st.tuples(st.just("begin"), _PARTITION, st.floats(0, 1))
_RECREATE = st.tuples(st.just("recreate"), _PARTITION)
_EPOCH = st.tuples(st.just("epoch"), _PARTITION)
_SEND = st.tuples(
    st.just("send"), _PARTITION, st.integers(0, 1), st.integers(1, 3), st.integers(0, 5)
)
_COPY = st.tuples(st.just("copy"), _PARTITION)
_MERGE = st.tuples(st.just("merge"), _PARTITION, st.floats(0, 1), st.sampled_from([61, 30_000]))
_SIMPLE = st.sampled_from(
    [("flush",), ("reopen",), ("crash",), ("checkpoint",), ("roll",), ("relocated",)]
)
_STEPS = st.lists(
    st.one_of(
        _APPEND,
        _APPEND,
        _SEND,
        _SEND,
        _TRUNCATE,
        _AFRESH,
        _BEGIN,
        _RECREATE,
        _EPOCH,
        _COPY,
        _MERGE,
        _SIMPLE,
        _SIMPLE,
    ),
    max_size=30,
)

_OLD = [("append", 0, 2, 3000)] * 4 + [("append", 1, 1, 3000)] * 3 + [("roll",)]
_LATER = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.just(0), st.integers(1, 4), st.just(3000)),
        st.tuples(st.just("truncate"), st.just(0), st.floats(0, 1)),
        st.tuples(st.just("begin"), st.just(0), st.floats(0, 0.5)),
        st.tuples(st.just("merge"), st.just(0), st.floats(0, 1), st.just(61)),
        st.sampled_from([("copy", 0), ("roll",), ("reopen",), ("crash",)]),
    ),
    max_size=12,
)
"""What becomes of a log of which most lies in a segment that others keep from going."""


class Sent:
    """The batches of one producer: what it has in flight, it sends again after the log was cut."""

    def __init__(self) -> None:
        self.counts: list[int] = []
        self.offsets: list[int] = []
        """Where those of them are that were not cut off: the first ones."""

    def next(self, count: int, back: int) -> int:
        """Which one comes next: what was cut off, or a new one, or one of the last five again."""
        again = len(self.offsets) - back
        if back and again >= max(0, len(self.counts) - 5):
            return again
        if len(self.offsets) == len(self.counts):
            self.counts.append(count)
        return len(self.offsets)


class Model:
    """What one partition must hold: (base offset, end offset, bytes, epoch) per batch."""

    def __init__(self, start: int = 0) -> None:
        self.start = start
        self.batches: list[tuple[int, int, bytes, int]] = []
        self.sent: dict[int, Sent] = {}

    @property
    def end(self) -> int:
        return self.batches[-1][1] if self.batches else self.start

    def truncate(self, offset: int) -> None:
        self.batches = [one for one in self.batches if one[1] <= offset]
        for sent in self.sent.values():
            sent.offsets = [one for one in sent.offsets if one < self.end]

    def append(self, records: bytes, count: int, epoch: int) -> None:
        data = patched(memoryview(records), self.end, LeaderEpoch(epoch))
        self.batches.append((self.end, self.end + count, data, epoch))

    def merge(self, first: int, data: bytes) -> None:
        """Two batches, the one at ``first`` and its follower, are one now."""
        (base_offset, _, _, epoch), (_, end_offset, _, _) = self.batches[first : first + 2]
        self.batches[first : first + 2] = [(base_offset, end_offset, data, epoch)]

    def begin(self, offset: int) -> None:
        self.batches = [one for one in self.batches if one[1] > offset]
        self.start = offset

    def epochs(self) -> list[tuple[int, int]]:
        """The first offset of each epoch that has a batch."""
        found: dict[int, int] = {}
        for base_offset, _, _, epoch in self.batches:
            found.setdefault(epoch, max(base_offset, self.start))
        return list(found.items())

    def check(self, log: PartitionLog) -> None:
        assert (log.log_start_offset, log.log_end_offset) == (self.start, self.end)
        assert everything(log) == b"".join(data for _, _, data, _ in self.batches)
        for base_offset, end_offset, data, _ in self.batches:
            read = log.read(end_offset - 1, 1, end_offset)
            assert (b"".join(read.chunks), read.next_offset) == (data, end_offset)
            assert log.read(max(base_offset, self.start), 1, end_offset - 1).size == 0
        known = [entry for entry in log.leader_epochs.entries if entry[1] < self.end]
        assert known == self.epochs()


class History:
    """Runs the steps on a store and on the models."""

    def __init__(self, directory: Path, flush: Flush) -> None:
        self._directory = directory
        self._flush: Flush = flush
        self._models = {partition: Model() for partition in range(3)}
        self._epoch = 0
        self._seed = 0
        self._crashes = 0
        self._copying: list[asyncio.Task[list[bool]]] = []

    async def run(self, steps: list[tuple[object, ...]]) -> None:
        remaining = iter([*steps, ("reopen",)])
        for partition in self._models:
            await self._create(partition)
        opening = True
        while opening:
            opening = False
            async with self._opened() as store:
                self._check(store)
                for step in remaining:
                    if step[0] == "reopen":
                        opening = True
                        break
                    if step[0] == "crash":
                        await self._crash(store)
                        opening = True
                        break
                    await self._perform(store, step)
                    self._check(store)
                await self._copied()
        async with self._opened() as store:
            self._check(store)

    def _opened(self) -> AbstractAsyncContextManager[OpenStore]:
        return opened(self._directory, self._flush, segment_bytes=SEGMENT_BYTES, tail_bytes=50_000)

    async def _create(self, partition: int) -> None:
        async with self._opened() as store:
            store.create("t", partition)

    def _check(self, store: OpenStore) -> None:
        for partition, model in self._models.items():
            model.check(store.log("t", partition))

    async def _perform(self, store: OpenStore, step: tuple[object, ...]) -> None:
        match step:
            case ("append", int(partition), int(count), int(size)):
                self._seed += 1
                records = batch(count, size, seed=self._seed)
                self._models[partition].append(records, count, self._epoch)
                store.log("t", partition).append_as_leader(records, LeaderEpoch(self._epoch))
            case ("send", int(partition), int(producer_id), int(count), int(back)):
                self._send(store, partition, producer_id, count, back)
            case ("truncate", int(partition), float(where)):
                model = self._models[partition]
                offset = model.start + round(where * (model.end - model.start))
                model.truncate(offset)
                await store.log("t", partition).truncate_to(offset)
            case ("afresh", int(partition), int(start)):
                self._models[partition] = Model(start)
                await store.log("t", partition).truncate_fully_and_start_at(start)
            case ("begin", int(partition), float(where)):
                model = self._models[partition]
                await self._flush_all(store)
                offset = model.start + round(where * (model.end - model.start))
                model.begin(offset)
                await store.log("t", partition).start_at(offset)
            case ("recreate", int(partition)):
                self._models[partition] = Model()
                await store.store.delete(store.log("t", partition).tip)
                store.create("t", partition)
            case ("epoch", int(partition)):
                self._epoch += 1
                log = store.log("t", partition)
                log.leader_epochs.assign(LeaderEpoch(self._epoch), log.log_end_offset)
            case ("flush",):
                await self._flush_all(store)
            case ("checkpoint",):
                ends = {log.tip: log.log_end_offset for log in store.store.logs.values()}
                store.store.checkpoint_high_watermarks(ends)
            case _:
                await self._rewrite(store, step)

    async def _rewrite(self, store: OpenStore, step: tuple[object, ...]) -> None:
        match step:
            case ("copy", int(partition)):
                await self._copy(store.store, store.log("t", partition))
            case ("merge", int(partition), float(where), int(size)):
                await self._merge(store, partition, where, size)
            case ("roll",):
                await store.store.writer.roll()
                await store.store.housekeeping.idle()
            case ("relocated",):
                await store.store.relocator.idle()
            case _:
                raise AssertionError(step)

    async def _copy(self, store: LogManager, log: PartitionLog) -> None:
        """Begin to copy all that is in sealed segments; what follows happens meanwhile."""
        rewrites = []
        for placed in log.placed(0, log.log_end_offset):
            if placed.segment.is_sealed:
                data = b"".join(placed.segment.read(log.number, [placed[:2]]))
                rewrites.append(
                    Rewrite(log, [placed], [Batch(read_header(data), memoryview(data))])
                )
        self._copying.append(asyncio.create_task(store.rewrite(rewrites)))
        await asyncio.sleep(0)

    async def _copied(self) -> None:
        await asyncio.gather(*self._copying)
        self._copying.clear()

    async def _merge(self, store: OpenStore, partition: int, where: float, size: int) -> None:
        """Two neighbours in sealed segments, of one epoch and of no producer, become one batch."""
        model, log = self._models[partition], store.log("t", partition)
        await self._copied()
        first = int(where * max(0, len(model.batches) - 2))
        pair = model.batches[first : first + 2]
        old = log.placed(pair[0][0], pair[-1][1]) if pair else []
        epochs = {epoch for _, _, _, epoch in pair}
        is_kept = any(read_header(data).producer_id >= 0 for _, _, data, _ in pair)
        if len(old) < 2 or len(epochs) > 1 or is_kept or not all(o.segment.is_sealed for o in old):
            return
        self._seed += 1
        empty = batch(pair[1][1] - pair[0][0], size, seed=self._seed)
        data = bytes(patched(memoryview(empty), pair[0][0], LeaderEpoch(pair[0][3])))
        new = Batch(read_header(data), memoryview(data))
        assert await store.store.rewrite([Rewrite(log, old, [new])]) == [True]
        model.merge(first, data)

    def _send(
        self, store: OpenStore, partition: int, producer_id: int, count: int, back: int
    ) -> None:
        model = self._models[partition]
        sent = model.sent.setdefault(producer_id, Sent())
        which = sent.next(count, back)
        count = sent.counts[which]
        records = batch(count, 3000, producer=(producer_id, 0, sum(sent.counts[:which])))
        if which == len(sent.offsets):
            sent.offsets.append(model.end)
            model.append(records, count, self._epoch)
        appended = store.log("t", partition).append_as_leader(records, LeaderEpoch(self._epoch))
        assert appended[:2] == (sent.offsets[which], sent.offsets[which] + count - 1)

    async def _flush_all(self, store: OpenStore) -> None:
        await store.until_flushed(*store.store.logs.values())

    async def _crash(self, store: OpenStore) -> None:
        """Go on in a copy of the folder as it is, as after kill -9: the table says "not closed"."""
        await self._copied()
        await self._flush_all(store)
        # A creation is not waited for by anyone: let a later step that is waited for pass it.
        await store.store.delete(store.create("barrier").tip)
        for _ in range(2):  # What is copied forward lets segments go.
            await store.store.relocator.idle()
            await store.store.housekeeping.idle()
        self._crashes += 1
        copy = self._directory.with_name(f"after-crash-{self._crashes}")
        shutil.copytree(self._directory, copy)
        self._directory = copy


@settings(max_examples=examples(10), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=_STEPS, flush=st.sampled_from(["sync", "os"]))
def test_a_store_holds_what_its_history_says(steps: list[tuple[object, ...]], flush: Flush) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(History(Path(folder) / "log", flush).run(steps))


@settings(max_examples=examples(10), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=_LATER, flush=st.sampled_from(["sync", "os"]))
def test_what_was_written_again_comes_back_in_no_older_version(
    steps: list[tuple[object, ...]], flush: Flush
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(History(Path(folder) / "log", flush).run([*_OLD, *steps]))
