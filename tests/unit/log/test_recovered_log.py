"""Putting a log together from segments that hold several versions of its batches."""

from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from quorate.broker.log.batches.record_batch import BatchHeader
from quorate.broker.log.checkpoints.partition_row import PartitionRow
from quorate.broker.log.checkpoints.table_rows import TruncationRule
from quorate.broker.log.recovery.recovered_log import RecoveredLog
from quorate.broker.log.segments.segment import Segment
from quorate.broker.log.segments.segment_contents import SegmentContents, StoredBatch

NUMBER = 3


@dataclass
class Version:
    """A batch as one segment has it; ``size`` tells versions apart."""

    base: int
    last: int
    size: int
    producer: int = -1
    sequence: int = -1


@dataclass
class Folder:
    """What lies in the segments, and what the log is."""

    segments: list[dict[int, Version]] = field(default_factory=lambda: [{}])
    log: list[tuple[int, Version]] = field(default_factory=list)
    """(place of its segment, batch)"""
    truncation_rules: list[TruncationRule] = field(default_factory=list)
    start: int = 0
    sizes: int = 100

    @property
    def end(self) -> int:
        return self.log[-1][1].last + 1 if self.log else self.start

    @property
    def active(self) -> int:
        return len(self.segments) - 1

    def append(self, count: int, producer: int = -1) -> None:
        self._put(Version(self.end, self.end + count - 1, self._size(), producer, self.end))

    def roll(self) -> None:
        self.segments.append({})

    def rewrite(self, first: float, count: int) -> None:
        """One batch in place of several neighbours in sealed segments, or a copy of one."""
        sealed = [at for at, (segment, _) in enumerate(self.log) if segment < self.active]
        if not sealed:
            return
        begin = sealed[int(first * (len(sealed) - 1))]
        end = min(begin + count, sealed[-1] + 1)
        old = [batch for _, batch in self.log[begin:end]]
        merged = Version(old[0].base, old[-1].last, self._size())
        self.segments[-1][merged.base] = merged
        self.log[begin:end] = [(self.active, merged)]

    def truncate(self, where: float) -> None:
        """As the journal does it: the active segment is cut, the sealed ones get a rule."""
        keep = int(where * len(self.log))
        if keep == len(self.log):
            return
        offset = self.log[keep][1].base
        del self.log[keep:]
        self.segments[-1] = {base: one for base, one in self.segments[-1].items() if base < offset}
        self.truncation_rules.append(
            TruncationRule(self.active, offset)
        )  # ids begin at 1: up to the one before it

    def begin(self, where: float) -> None:
        self.start += int(where * (self.end - self.start))
        self.log = [one for one in self.log if one[1].last >= self.start]

    def unlink_empty(self) -> None:
        lively = {segment for segment, _ in self.log} | {self.active}
        for segment in range(self.active):
            if segment not in lively:
                self.segments[segment] = {}

    def recovered(self) -> tuple[RecoveredLog, list[Segment]]:
        row = PartitionRow(NUMBER, bytes(16), 0, "t", self.start)
        found = RecoveredLog(row, self.truncation_rules, b"")
        segments = []
        for place, held in enumerate(self.segments):
            segment = Segment(Path(f"segment-{place + 1}"), place + 1, None)  # type: ignore[arg-type]
            contents = contents_of(place + 1, held)
            for run in contents.runs():
                found.add(run, contents, segment, is_recent=True)
            segments.append(segment)
        found.assemble()
        return found, segments

    def _put(self, batch: Version) -> None:
        self.segments[-1][batch.base] = batch
        self.log.append((self.active, batch))

    def _size(self) -> int:
        self.sizes += 1
        return self.sizes


def contents_of(segment_id: int, held: dict[int, Version]) -> SegmentContents:
    batches = []
    for base, one in sorted(held.items()):
        header = BatchHeader(
            base, one.size - 12, 0, 2, 0, 0, one.last - base, 0, 0, one.producer, 0, 0, 1
        )
        header = header._replace(base_sequence=max(0, one.sequence))
        batches.append(StoredBatch(NUMBER, base, one.size, header))
    return SegmentContents.of(segment_id, 0, batches, [])


_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 4)),
        st.tuples(st.just("append"), st.integers(1, 4)),
        st.tuples(st.just("roll")),
        st.tuples(st.just("rewrite"), st.floats(0, 1), st.integers(1, 3)),
        st.tuples(st.just("rewrite"), st.floats(0, 1), st.integers(1, 3)),
        st.tuples(st.just("truncate"), st.floats(0, 1)),
        st.tuples(st.just("begin"), st.floats(0, 1)),
        st.tuples(st.just("unlink_empty")),
    ),
    max_size=40,
)


@given(steps=_STEPS)
def test_of_every_batch_the_newest_version_is_found(steps: list[tuple[object, ...]]) -> None:
    folder = Folder()
    for name, *arguments in steps:
        getattr(folder, str(name))(*arguments)
        check(folder)


def check(folder: Folder) -> None:
    found, segments = folder.recovered()
    index = found.index
    assert not found.has_gap
    assert found.end_offset == folder.end
    assert index.entries(0, len(index)) == [(one.base, one.size) for _, one in folder.log]
    where = [
        segment.id - 1
        for segment, first, end in index.spans(0, len(index))
        for _ in range(first, end)
    ]
    assert where == [segment for segment, _ in folder.log]
    for place, segment in enumerate(segments):
        living = [one for at, one in folder.log if at == place]
        assert (segment.live_batches, segment.live_bytes) == (
            len(living),
            sum(one.size for one in living),
        )


def test_a_log_ends_at_the_first_gap() -> None:
    folder = Folder()
    for _ in range(6):
        folder.append(2)
        folder.roll()
    folder.segments[3] = {}
    found, segments = folder.recovered()
    assert (found.has_gap, found.end_offset) == (True, 6)
    assert [segment.live_batches for segment in segments] == [1, 1, 1, 0, 0, 0, 0]


def test_a_log_that_does_not_begin_where_it_should_is_empty() -> None:
    folder = Folder()
    folder.append(2)
    folder.roll()
    folder.append(2)
    folder.segments[0] = {}
    found, _ = folder.recovered()
    assert (found.has_gap, found.end_offset, len(found.index)) == (True, 0, 0)


def test_a_newer_batch_inside_an_older_ones_span_is_nothing_that_was_written() -> None:
    folder = Folder()
    folder.append(10)
    folder.roll()
    folder.segments[-1][5] = Version(5, 9, 200)
    found, _ = folder.recovered()
    assert (found.has_gap, found.end_offset) == (True, 10)


def test_producers_are_learned_from_the_versions_that_count() -> None:
    folder = Folder()
    for _ in range(4):
        folder.append(2, producer=7)
    folder.roll()
    folder.rewrite(0, 1)
    found, _ = folder.recovered()
    packed = found.producers.pack_before(100)
    assert packed == _in_order_alone(folder)


def _in_order_alone(folder: Folder) -> bytes:
    """What remains when the first batch no longer says whose it was."""
    alone = Folder()
    alone.append(2)
    for _ in range(3):
        alone.append(2, producer=7)
    return alone.recovered()[0].producers.pack_before(100)
