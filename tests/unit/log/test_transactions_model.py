"""Random histories of a log with transactions, against what follows from the list of its batches.

The log is cut at both ends, loses its process, is copied forward and followed; whatever it is
asked for then must be what someone finds who reads all of it and forgets nothing.
"""

import tempfile
from pathlib import Path
from typing import NamedTuple

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from quorate.broker.log import PartitionLog
from quorate.broker.log.batches.admission import AppendOrigin
from quorate.broker.log.batches.control_batches import EndMarker, encode_marker
from tests.support.committed_reader import committed_batches
from tests.support.examples import examples
from tests.support.log_stores import EPOCH, OpenStore, batch, everything, opened
from tests.support.record_batches import TRANSACTIONAL

PRODUCERS = 2
SEGMENT_BYTES = 96 << 10

_PRODUCER = st.integers(0, PRODUCERS - 1)
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), _PRODUCER, st.integers(1, 3)),
        st.tuples(st.just("write"), _PRODUCER, st.integers(1, 3)),
        st.tuples(st.just("end"), _PRODUCER, st.booleans(), st.integers(0, 1)),
        st.tuples(st.just("end"), _PRODUCER, st.booleans(), st.integers(0, 1)),
        st.tuples(st.just("plain"), st.just(1)),
        st.tuples(st.just("commit"), st.sampled_from([0.5, 1.0])),
        st.tuples(st.just("commit"), st.just(1.0)),
        st.tuples(st.just("truncate"), st.integers(1, 4)),
        st.tuples(st.just("truncate"), st.integers(1, 4)),
        st.tuples(st.just("begin"), st.floats(0, 1)),
        st.sampled_from([("reopen",), ("roll",), ("flush",), ("relocate",)]),
    ),
    min_size=20,
    max_size=60,
)


class Written(NamedTuple):
    """A batch; ``committed``: of a marker, how it ends its transaction."""

    base: int
    end: int
    producer_id: int | None = None
    committed: bool | None = None


class Model:
    """All batches of a log, in order."""

    def __init__(self) -> None:
        self.start = 0
        self.high_watermark = 0
        self.batches: list[Written] = []
        self.forgotten: list[Written] = []
        """Below the start of the log."""

    @property
    def end(self) -> int:
        return self.batches[-1].end if self.batches else self.start

    def first_unstable(self, batches: list[Written]) -> int:
        """Where the first transaction begins that has no marker below the high watermark."""
        ongoing: dict[int, int] = {}
        for one in batches:
            if one.producer_id is None:
                continue
            if one.committed is None:
                ongoing.setdefault(one.producer_id, one.base)
            elif one.end <= self.high_watermark:
                ongoing.pop(one.producer_id, None)
        return min([*ongoing.values(), self.high_watermark])

    def counting(self, offset: int, end_offset: int) -> list[int]:
        """Base offsets of what an application is to get of [offset, end)."""
        aborted: set[int] = set()
        waiting: dict[int, list[int]] = {}
        for one in self.batches:
            if one.producer_id is None:
                continue
            if one.committed is None:
                waiting.setdefault(one.producer_id, []).append(one.base)
            else:
                ended = waiting.pop(one.producer_id, [])
                aborted.update(ended if not one.committed else ())
        return [
            one.base
            for one in self.batches
            if one.end > offset
            and one.end <= end_offset
            and one.committed is None
            and one.base not in aborted
        ]

    def truncate(self, offset: int) -> None:
        self.batches = [one for one in self.batches if one.end <= offset]
        self.high_watermark = min(self.high_watermark, self.end)

    def begin(self, offset: int) -> None:
        self.forgotten += [one for one in self.batches if one.end <= offset]
        self.batches = [one for one in self.batches if one.end > offset]
        self.start = offset
        self.high_watermark = max(self.high_watermark, offset)

    def check(self, log: PartitionLog) -> None:
        assert (log.log_start_offset, log.log_end_offset) == (self.start, self.end)
        stable = log.stable_offset(self.high_watermark)
        # Whoever was not there when the log's start moved knows nothing of what lay before it.
        assert stable <= max(self.start, self.first_unstable(self.batches))
        assert stable >= max(self.start, self.first_unstable([*self.forgotten, *self.batches]))
        for one in self.batches:
            offset = max(self.start, one.base)
            read = log.read(offset, 1 << 30, stable)
            aborted = log.transactions.aborted(offset, read.next_offset)
            assert all(first < read.next_offset and last >= offset for _, first, last in aborted)
            found = committed_batches(b"".join(read.chunks), aborted)
            assert found == self.counting(offset, read.next_offset)
            read = log.read(offset, 1, stable)
            aborted = log.transactions.aborted(offset, read.next_offset)
            found = committed_batches(b"".join(read.chunks), aborted)
            assert found == self.counting(offset, read.next_offset)


class History:
    """Runs the steps on a leader's log, on one that follows it, and on the model."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._model = Model()
        self._epochs = [0] * PRODUCERS
        self._sequences = [0] * PRODUCERS
        self._instances = 0

    async def run(self, steps: list[tuple[object, ...]]) -> None:
        remaining = iter(steps)
        opening = True
        while opening:
            opening = False
            async with opened(self._directory, segment_bytes=SEGMENT_BYTES) as store:
                if not store.store.logs:
                    store.create()
                self._check(store)
                for step in remaining:
                    if step[0] == "reopen":
                        await store.until_flushed(store.log())
                        opening = True
                        break
                    await self._perform(store, step)
                    self._model.check(store.log())
        async with opened(self._directory) as store:
            self._check(store)
            await self._follow(store)

    def _check(self, store: OpenStore) -> None:
        """After a start: what is known to be committed is what was written down last."""
        log = store.log()
        self._model.high_watermark = log.checkpointed_high_watermark
        self._model.check(log)

    async def _perform(self, store: OpenStore, step: tuple[object, ...]) -> None:
        model, log = self._model, store.log()
        match step:
            case ("write", int(producer), int(count)):
                place = (producer, self._epochs[producer], self._sequences[producer])
                data = batch(count, 3000, producer=place, attributes=TRANSACTIONAL)
                model.batches.append(Written(model.end, model.end + count, producer))
                log.append_as_leader(data, EPOCH, AppendOrigin.TRANSACTIONAL_CLIENT)
                self._sequences[producer] += count
            case ("end", int(producer), bool(committed), int(bumped)):
                self._epochs[producer] += bumped
                self._sequences[producer] *= 1 - bumped
                marker = EndMarker(producer, self._epochs[producer], committed, 0)
                model.batches.append(Written(model.end, model.end + 1, producer, committed))
                log.append_as_leader(encode_marker(marker, 1000), EPOCH, AppendOrigin.MARKERS)
            case ("plain", int(count)):
                model.batches.append(Written(model.end, model.end + count))
                log.append_as_leader(batch(count, 3000), EPOCH)
            case ("commit", float(part)):
                await store.until_flushed(log)
                gained = round(part * (model.end - model.high_watermark))
                model.high_watermark += gained
                log.transactions.settle(model.high_watermark)
                store.store.checkpoint_high_watermarks({log.tip: model.high_watermark})
            case ("truncate", int(count)):
                bases = [model.start, *(one.base for one in model.batches[1:])]
                await self._truncate(log, bases[max(0, len(bases) - count)])
            case ("begin", float(where)):
                await store.until_flushed(log)
                offset = model.start + round(where * (model.high_watermark - model.start))
                model.begin(offset)
                await log.start_at(offset)
            case ("roll",):
                await store.store.writer.roll()
            case ("relocate",):
                store.store.relocator.wake()
            case ("flush",):
                await store.until_flushed(log)

    async def _truncate(self, log: PartitionLog, offset: int) -> None:
        """Producers that lost batches go on with another id: sequences are not what is tested."""
        self._model.truncate(offset)
        await log.truncate_to(offset)
        self._epochs = [epoch + 1 for epoch in self._epochs]
        self._sequences = [0] * PRODUCERS

    async def _follow(self, store: OpenStore) -> None:
        """A log that gets all of it from its leader knows the same."""
        leader, follower = store.log(), store.create("follower")
        if leader.log_start_offset:
            await follower.truncate_fully_and_start_at(leader.log_start_offset)
        if leader.log_end_offset > leader.log_start_offset:
            follower.append_as_follower(everything(leader))
        follower.transactions.settle(self._model.high_watermark)
        self._model.check(follower)


_ABORTED = [("write", 0, 1), ("end", 0, False, 0)]


@given(steps=_STEPS)
@example(steps=[*_ABORTED, ("commit", 1.0), ("truncate", 1), ("reopen",)])
@example(steps=[*_ABORTED, ("truncate", 1), ("end", 0, True, 1), ("commit", 1.0)])
@example(steps=[("write", 0, 2), ("commit", 1.0), ("begin", 0.5), ("truncate", 1)])
@settings(
    max_examples=examples(10),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
async def test_a_log_knows_of_transactions_what_its_batches_say(
    steps: list[tuple[object, ...]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        await History(Path(folder)).run(steps)
