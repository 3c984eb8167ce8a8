"""Random logs, cleaned again and again, against a model that reads record by record."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from quorate.broker.log.batches.record_batch import Batch, BatchHeader, patched, read_header
from quorate.broker.log.compaction.log_cleaning import CleaningTask, LogCleaning
from quorate.broker.log.compaction.offset_map import BYTES_PER_KEY
from quorate.broker.log.compaction.replacements import Replacement
from quorate.broker.log.state.leader_epoch_cache import LeaderEpochCache
from quorate.broker.log.state.producer_state_manager import ProducerStateManager
from quorate.common.types import LeaderEpoch
from tests.support.read_records import read_records
from tests.support.record_batches import CODECS, Record, encode_batch

RETENTION_MS = 1000
_KEYS = st.sampled_from([b"a", b"b", b"c", b"", None])
_BATCH = st.tuples(
    st.lists(st.tuples(_KEYS, st.booleans()), min_size=1, max_size=4),
    st.sampled_from(list(CODECS)),
    st.integers(-1, 1),
    st.booleans(),
)
"""Records as (key, is a tombstone), codec, producer (-1: none), whether a leader epoch begins."""
_ROUND = st.tuples(
    st.lists(_BATCH, max_size=8), st.integers(0, 2 * RETENTION_MS), st.integers(1, 6)
)
"""What is appended, how much time passes, how many keys the map has room for."""


class Log:
    """Batches in order, and every record there ever was."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.end = self.clean_to = self.epoch = self.serial = 0
        self.sequences: dict[int, int] = {}
        self.records: list[Record] = []
        self.cleaned_at: dict[int, int] = {}
        """Of each offset, when it was first cleaned."""

    def append(
        self, keys: list[tuple[bytes | None, bool]], codec: str, producer: int, new_epoch: bool
    ) -> None:
        self.epoch += new_epoch
        records = []
        for place, (key, is_tombstone) in enumerate(keys):
            self.serial += 1
            value = None if is_tombstone else b"value %d" % self.serial
            records.append(Record(self.end + place, 10**12 + self.serial, key, value))
        sequence = self.sequences.get(producer, 0) if producer >= 0 else -1
        self.sequences[producer] = sequence + len(keys)
        batch = encode_batch(
            records, codec=codec, producer=(producer, 0 if producer >= 0 else -1, sequence)
        )
        self.batches.append(patched(memoryview(batch), self.end, LeaderEpoch(self.epoch)))
        self.records += records
        self.end += len(records)

    def headers(self) -> list[BatchHeader]:
        return [read_header(data) for data in self.batches]

    def stored(self, start: int, end: int) -> bytes:
        """The batches that begin in [start, end)."""
        pairs = zip(self.headers(), self.batches, strict=True)
        return b"".join(data for header, data in pairs if start <= header.base_offset < end)

    def producers(self) -> ProducerStateManager:
        """What a broker that reads this log knows of producers."""
        known = ProducerStateManager("test")
        for header in self.headers():
            known.record(header, header.base_offset)
        return known

    def sequences_known(self) -> list[object]:
        """What they are, in no order."""
        return sorted(msgspec.msgpack.decode(self.producers().pack_before(self.end) or b"\x90"))

    def epochs(self) -> list[tuple[int, int]]:
        history = LeaderEpochCache()
        for header in self.headers():
            history.assign(LeaderEpoch(header.leader_epoch), header.base_offset)
        return history.entries

    def clean(self, now_ms: int, keys: int) -> int:
        """Clean as far as the map goes; returns how many replacements that took."""
        cleaning = LogCleaning(
            CleaningTask(
                dirty_from=self.clean_to,
                pinned=self.producers().remembered_offsets(),
                now_ms=now_ms,
                delete_retention_ms=RETENTION_MS,
                key_bytes=keys * BYTES_PER_KEY,
            )
        )
        cleaning.map(self.stored(self.clean_to, self.end))
        end = cleaning.mapped_to
        changes = cleaning.clean(self.stored(0, end)) + cleaning.finish()
        for change in changes:
            self._replace(change)
        for offset in range(self.clean_to, end):
            self.cleaned_at[offset] = now_ms
        self.clean_to = end
        return len(changes)

    def _replace(self, change: Replacement) -> None:
        found = [(read_header(data).base_offset, len(data)) for data in self.batches]
        first = found.index(change.old[0])
        assert found[first : first + len(change.old)] == change.old
        self.batches[first : first + len(change.old)] = change.new

    def check(self, now_ms: int) -> None:
        """Spans without a gap; below where it is clean, every key once, the newest."""
        at = 0
        for header in self.headers():
            assert header.base_offset == at
            at = header.last_offset + 1
        assert at == self.end
        found = read_records(b"".join(self.batches))
        newest = {record.key: record for record in self.records[: self.clean_to]}
        kept = [record for record in found if record.offset < self.clean_to]
        assert found[len(kept) :] == self.records[self.clean_to :]
        assert len({record.key for record in kept}) == len(kept)
        for record in kept:
            assert record.key is not None
            assert newest[record.key] == record == self.records[record.offset]
        for key, record in newest.items():
            may_be_gone = record.value is None and (
                now_ms >= self.cleaned_at[record.offset] + RETENTION_MS
            )
            assert record in kept or key is None or may_be_gone


@given(st.lists(_ROUND, min_size=1, max_size=5))
def test_a_clean_log_has_the_newest_record_of_each_key(
    rounds: list[tuple[list[tuple[list[tuple[bytes | None, bool]], str, int, bool]], int, int]],
) -> None:
    log, now_ms = Log(), 10**13
    for appended, passed_ms, keys in rounds:
        for batch in appended:
            log.append(*batch)
        now_ms += passed_ms
        epochs, sequences = log.epochs(), log.sequences_known()
        log.clean(now_ms, keys)
        log.check(now_ms)
        assert log.epochs() == epochs
        assert log.sequences_known() == sequences


@given(st.lists(_BATCH, max_size=12))
def test_a_clean_log_is_left_alone(
    appended: list[tuple[list[tuple[bytes | None, bool]], str, int, bool]],
) -> None:
    log = Log()
    for batch in appended:
        log.append(*batch)
    log.clean(10**13, 1000)
    assert log.clean_to == log.end
    assert log.clean(10**13, 1000) == 0


@given(st.lists(_BATCH, min_size=1, max_size=12), st.integers(1, 3))
def test_cleaning_gets_on_however_small_the_map_is(
    appended: list[tuple[list[tuple[bytes | None, bool]], str, int, bool]], keys: int
) -> None:
    log = Log()
    for batch in appended:
        log.append(*batch)
    for _ in appended:
        log.clean(10**13, keys)
        log.check(10**13)
    assert log.clean_to == log.end


def test_runs_of_dead_batches_become_one_per_epoch() -> None:
    log = Log()
    for epoch_begins in [False] * 5 + [True] + [False] * 5:
        log.append([(b"k", False)], "none", -1, epoch_begins)
    log.clean(10**13, 1000)
    spans = [
        (header.base_offset, header.last_offset, header.record_count) for header in log.headers()
    ]
    assert spans == [(0, 4, 0), (5, 9, 0), (10, 10, 1)]
    log.append([(b"k", False)], "none", -1, False)
    log.clean(10**13, 1000)
    assert [header.last_offset for header in log.headers()] == [4, 10, 11]


def test_a_retry_is_found_after_its_batch_was_cleaned_away() -> None:
    log = Log()
    for _ in range(9):
        log.append([(b"k", False), (b"k", False)], "none", 1, False)
    log.clean(10**13, 1000)
    spans = [read_header(data) for data in log.batches]
    assert [(one.record_count, one.base_sequence) for one in spans] == [
        (0, -1), (0, 8), (0, 10), (0, 12), (0, 14), (1, 16),
    ]  # fmt: skip
    again = spans[-3]._replace(record_count=2)
    (original,) = log.producers().find_duplicates([Batch(again, memoryview(b""))])
    assert original == (12, 13)
