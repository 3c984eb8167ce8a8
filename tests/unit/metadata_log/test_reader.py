"""The one reader never skips, never repeats, and begins with a snapshot where it must."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from quorate.common.types import MetadataOffset
from quorate.metadata_log.image import Image
from quorate.metadata_log.reader import LogEntry, MetadataLogReader, SnapshotStart, images
from quorate.metadata_log.snapshot.snapshot import decode_snapshot, encode_snapshot
from tests.support.metadata import MetadataLogBuilder


class RetainedLog:
    """A log compacted up to some offset, applied up to another."""

    def __init__(self, entries: Sequence[LogEntry], compacted: Image, applied: int) -> None:
        self._entries = entries
        self._compacted = compacted
        self.first_offset = MetadataOffset(compacted.offset + 1)
        self.applied_offset = MetadataOffset(applied)

    def entries(self, start: MetadataOffset, max_bytes: int) -> Sequence[LogEntry]:
        found = [e for e in self._entries if start <= e.offset <= self.applied_offset]
        size = 0
        for number, entry in enumerate(found):
            size += len(entry.transaction)
            if size > max_bytes and number:
                return found[:number]
        return found

    def snapshot(self) -> SnapshotStart:
        return SnapshotStart(self._compacted.offset, encode_snapshot(self._compacted))


def history() -> tuple[MetadataLogBuilder, list[Image]]:
    log = MetadataLogBuilder()
    states = [log.image]
    for broker_id in range(6):
        log.start_broker(broker_id)
        states.append(log.image)
        log.skip_offset()
    return log, states


@given(
    start=st.integers(0, 12),
    compacted=st.integers(0, 6),
    max_bytes=st.integers(1, 400),
    trailing_noops=st.integers(0, 2),
)
def test_reading_gives_every_retained_transaction_once_and_in_order(
    start: int, compacted: int, max_bytes: int, trailing_noops: int
) -> None:
    log, states = history()
    applied = log.entries[-1].offset + trailing_noops
    source = RetainedLog(log.entries, states[compacted], applied)
    reader = MetadataLogReader(source, MetadataOffset(start))
    delivered: list[int] = []
    below = start
    while reader.next_offset <= applied:
        events = reader.next_events(max_bytes)
        if isinstance(events, SnapshotStart):
            assert not delivered, "a snapshot comes first or never"
            below = decode_snapshot(events.chunks).offset + 1
        else:
            delivered.extend(entry.offset for entry in events)
    assert delivered == [e.offset for e in log.entries if e.offset >= below]
    assert list(reader.next_events(max_bytes)) == []


def test_a_reader_below_what_is_retained_begins_with_a_snapshot() -> None:
    log, states = history()
    source = RetainedLog(log.entries, states[3], log.entries[-1].offset)
    assert isinstance(MetadataLogReader(source, MetadataOffset(1)).next_events(), SnapshotStart)
    assert isinstance(MetadataLogReader(source, MetadataOffset(0)).next_events(), SnapshotStart)
    at_first = MetadataLogReader(source, source.first_offset)
    assert not isinstance(at_first.next_events(), SnapshotStart)


def test_time_travel_gives_the_image_at_an_offset() -> None:
    log, states = history()
    source = RetainedLog(log.entries, states[2], log.entries[-1].offset)
    reader = MetadataLogReader(source, MetadataOffset(0))
    assert list(images(reader, Image(), states[4].offset))[-1] == states[4]
