"""What is left of transactions in a log that is cleaned."""

import pytest

from quorate.broker.log.batches.control_batches import EndMarker, decode_marker, encode_marker
from quorate.broker.log.batches.empty_batches import is_empty_span
from quorate.broker.log.batches.record_batch import BatchHeader, patched, read_header
from quorate.broker.log.compaction.log_cleaning import CleaningTask, LogCleaning
from quorate.broker.log.compaction.offset_map import BYTES_PER_KEY
from quorate.broker.log.state.aborted_transactions import AbortedTransaction
from quorate.common.types import LeaderEpoch
from tests.support.read_records import read_records
from tests.support.record_batches import CONTROL, TRANSACTIONAL, Record, encode_batch

ME, OTHER = 7, 8
RETENTION_MS = 1000
NOW_MS = 1_800_000_000_000
NOTHING: frozenset[int] = frozenset()


class Log:
    """Batches of one record or one marker each, at the offsets from 0 on."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []

    def write(self, producer_id: int, key: str) -> None:
        at = len(self.batches)
        record = Record(at, NOW_MS, key.encode(), b"value")
        producer = (producer_id, 0, at)
        self.batches.append(encode_batch([record], attributes=TRANSACTIONAL, producer=producer))

    def plain(self, key: str) -> None:
        at = len(self.batches)
        self.batches.append(encode_batch([Record(at, NOW_MS, key.encode(), b"plain")]))

    def end(self, producer_id: int, *, committed: bool) -> None:
        marker = encode_marker(EndMarker(producer_id, 0, committed, 3), NOW_MS)
        at = len(self.batches)
        self.batches.append(patched(memoryview(marker), at, LeaderEpoch(0)))

    def cleaned(
        self,
        *aborted: tuple[int, int, int],
        now_ms: int = NOW_MS,
        pinned: frozenset[int] = NOTHING,
        dirty_from: int = 0,
    ) -> "Log":
        task = CleaningTask(
            dirty_from=dirty_from,
            pinned=pinned,
            now_ms=now_ms,
            delete_retention_ms=RETENTION_MS,
            key_bytes=1000 * BYTES_PER_KEY,
            aborted=[AbortedTransaction(*one) for one in aborted],
        )
        cleaning = LogCleaning(task)
        dirty = [one for one in self.batches if read_header(one).base_offset >= dirty_from]
        cleaning.map(b"".join(dirty))
        after = Log()
        after.batches = list(self.batches)
        for change in cleaning.clean(b"".join(self.batches)) + cleaning.finish():
            bases = [read_header(one).base_offset for one in after.batches]
            first = bases.index(change.old[0][0])
            after.batches[first : first + len(change.old)] = change.new
        return after

    @property
    def headers(self) -> list[BatchHeader]:
        return [read_header(one) for one in self.batches]

    @property
    def records(self) -> list[tuple[bytes | None, bytes | None]]:
        data = [one for one in self.batches if not read_header(one).is_control]
        return [(record.key, record.value) for record in read_records(b"".join(data))]

    @property
    def markers(self) -> list[int]:
        """Offsets of the markers that are left."""
        return [one.base_offset for one in self.headers if one.is_control]


def test_kip_98_records_of_an_aborted_transaction_go_and_replace_none() -> None:
    log = Log()
    log.plain("a")
    log.write(ME, "a")
    log.write(OTHER, "b")
    log.end(ME, committed=False)
    log.end(OTHER, committed=True)
    log.write(ME, "c")
    log.end(ME, committed=True)
    after = log.cleaned((ME, 1, 3))
    assert after.records == [(b"a", b"plain"), (b"b", b"value"), (b"c", b"value")]
    assert [one.last_offset for one in after.headers][-1] == 6


def test_kip_98_a_transaction_that_began_in_the_clean_part_is_aborted_beyond_it_too() -> None:
    log = Log()
    log.plain("a")
    log.write(ME, "b")
    log.write(ME, "a")
    log.end(ME, committed=False)
    assert log.cleaned((ME, 1, 3), dirty_from=2).records == [(b"a", b"plain")]


def test_kip_534_a_marker_outlives_its_transaction_as_long_as_a_tombstone() -> None:
    log = Log()
    log.write(ME, "a")
    log.end(ME, committed=False)
    log.plain("b")
    after = log.cleaned((ME, 0, 1))
    assert after.markers == [1]
    (marker,) = [one for one in after.headers if one.is_control]
    assert (marker.has_delete_horizon, marker.base_timestamp) == (True, NOW_MS + RETENTION_MS)
    place = after.headers.index(marker)
    assert decode_marker(marker, after.batches[place]) == EndMarker(ME, 0, False, 3)
    assert marker.max_timestamp == NOW_MS
    assert after.cleaned(now_ms=NOW_MS + RETENTION_MS - 1).batches == after.batches
    gone = after.cleaned(now_ms=NOW_MS + RETENTION_MS)
    assert gone.markers == []
    assert is_empty_span(gone.headers[0])
    assert gone.records == [(b"b", b"plain")]


def test_kip_98_a_marker_stays_as_long_as_a_record_of_its_transaction() -> None:
    log = Log()
    log.write(ME, "a")
    log.write(ME, "b")
    log.end(ME, committed=True)
    after = log.cleaned()
    assert after.batches == log.batches
    log.plain("a")
    some = log.cleaned(now_ms=NOW_MS)
    assert (some.markers, len(some.records)) == ([2], 2)
    assert not any(one.has_delete_horizon for one in some.headers)
    log.plain("b")
    assert [one.has_delete_horizon for one in log.cleaned().headers if one.is_control] == [True]


@pytest.mark.parametrize("is_marker", [True, False], ids=["its marker", "its batch"])
def test_what_tells_of_a_producer_that_is_known_stays(is_marker: bool) -> None:
    """Of a batch the header: of no transaction any more, whose marker may go before it."""
    log = Log()
    log.write(ME, "a")
    log.end(ME, committed=False)
    log.plain("b")
    at = 1 if is_marker else 0
    after = log
    for _ in range(2):
        after = after.cleaned((ME, 0, 1), now_ms=NOW_MS + RETENTION_MS, pinned=frozenset({at}))
        after = after.cleaned(now_ms=NOW_MS + 9 * RETENTION_MS, pinned=frozenset({at}))
    kept = [one for one in after.headers if one.base_offset == at]
    assert [one.producer_id for one in kept] == [ME]
    assert [one.is_control for one in kept] == [is_marker]
    if not is_marker:
        assert (kept[0].base_sequence, kept[0].record_count) == (0, 0)
        assert not kept[0].is_transactional


def test_control_batches_that_nobody_knows_stay() -> None:
    log = Log()
    record = Record(0, NOW_MS, b"\0\0\0\2", b"leader change")
    log.batches.append(encode_batch([record], attributes=CONTROL))
    assert log.cleaned(now_ms=NOW_MS + 9 * RETENTION_MS).batches == log.batches
