"""The newest transactions in memory: bounded, without a gap."""

from quorate.common.types import MetadataOffset
from quorate.metadata_log.reader import LogEntry
from quorate.quorum.voter.watch_sources import LogTail


def entry(offset: int) -> LogEntry:
    return LogEntry(MetadataOffset(offset), b"x" * 10)


def offsets(entries: list[LogEntry]) -> list[int]:
    return [each.offset for each in entries]


def test_reads_from_an_offset_that_may_be_a_no_op() -> None:
    tail = LogTail()
    tail.extend([entry(3), entry(5), entry(9)])
    assert offsets(tail.read(MetadataOffset(4), 1_000)) == [5, 9]
    assert offsets(tail.read(MetadataOffset(5), 1_000)) == [5, 9]
    assert tail.read(MetadataOffset(10), 1_000) == []


def test_reads_at_least_one_entry() -> None:
    tail = LogTail()
    tail.extend([entry(3), entry(4)])
    assert offsets(tail.read(MetadataOffset(1), 1)) == [3]


def test_is_bounded_and_says_from_where_it_is_whole() -> None:
    tail = LogTail(max_bytes=1_700)
    for offset in range(1, 1_000, 2):
        tail.extend([entry(offset)])
        held = tail.read(tail.first_offset, 10**9)
        assert len(held) <= 20
        assert held[-1].offset == offset == tail.last_offset
        if tail.first_offset > 1:
            assert held[0].offset == tail.first_offset + 1
    assert tail.first_offset > 900


def test_starts_over_behind_a_snapshot() -> None:
    tail = LogTail()
    tail.extend([entry(3)])
    tail.restart(MetadataOffset(50))
    assert (tail.first_offset, tail.last_offset) == (50, 0)
    assert tail.read(MetadataOffset(50), 100) == []


def test_a_run_that_alone_is_too_much_is_bounded_as_well() -> None:
    tail = LogTail(max_bytes=1_700)
    tail.extend([entry(offset) for offset in range(1, 1_000)])
    held = offsets(tail.read(tail.first_offset, 10**9))
    assert 10 <= len(held) <= 20
    assert held == list(range(tail.first_offset, 1_000))
    assert tail.first_offset == held[0]


def test_reads_on_over_runs() -> None:
    tail = LogTail()
    tail.extend([entry(1), entry(2)])
    tail.extend([])
    tail.extend([entry(4), entry(6)])
    assert offsets(tail.read(MetadataOffset(2), 1_000)) == [2, 4, 6]
    assert offsets(tail.read(MetadataOffset(3), 11)) == [4, 6]
    assert offsets(tail.read(MetadataOffset(1), 25)) == [1, 2, 4]
    assert tail.last_offset == 6
