"""Cleaning a log with transactions changes nothing for whoever reads what was committed.

Random histories: what is read of each key, and what is known of transactions, by the log that was
cleaned, by the one that a restart finds, and by one that follows it.
"""

import contextlib
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from quorate.broker.log import PartitionLog
from quorate.broker.log.batches.admission import AppendOrigin
from quorate.broker.log.batches.control_batches import EndMarker, encode_marker
from quorate.broker.log.batches.record_batch import read_header
from quorate.broker.log.cleaning.cleaner import CleaningInterrupted
from tests.support.committed_reader import committed_batches
from tests.support.examples import examples
from tests.support.log_cleaning import DELETE_RETENTION_MS, clean, seal
from tests.support.log_stores import EPOCH, OpenStore, everything, opened
from tests.support.read_records import read_records
from tests.support.record_batches import TRANSACTIONAL, Record, encode_batch

PRODUCERS = 2
NOW_MS = 10**13

_KEY = st.sampled_from([b"a", b"b", b"c"])
_PRODUCER = st.integers(0, PRODUCERS - 1)
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), _PRODUCER, _KEY),
        st.tuples(st.just("write"), _PRODUCER, _KEY),
        st.tuples(st.just("end"), _PRODUCER, st.booleans()),
        st.tuples(st.just("plain"), _KEY),
        st.sampled_from([("clean",), ("expire",), ("reopen",)]),
    ),
    min_size=8,
    max_size=40,
)

View = tuple[dict[bytes | None, bytes | None], int, list[int]]


def view(log: PartitionLog) -> View:
    """Of each key the newest value that counts; how far that goes; and who is in a transaction."""
    stable = log.stable_offset(log.log_end_offset)
    read = log.read(log.log_start_offset, 1 << 30, stable)
    data = b"".join(read.chunks)
    aborted = log.transactions.aborted(log.log_start_offset, read.next_offset)
    counting = set(committed_batches(data, aborted))
    newest: dict[bytes | None, bytes | None] = {}
    at = 0
    while at < len(data):
        header = read_header(data[at:])
        if header.base_offset in counting:
            for record in read_records(data[at : at + header.size]):
                newest[record.key] = record.value
        at += header.size
    return newest, stable, sorted(log.transactions.ongoing)


class History:
    """Runs the steps on one log."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._sequences = [0] * PRODUCERS
        self._written = 0
        self._now_ms = NOW_MS

    async def run(self, steps: list[tuple[object, ...]]) -> None:
        remaining = iter([*steps, ("clean",), ("reopen",), ("clean",)])
        opening, before = True, None
        while opening:
            opening = False
            async with opened(self._directory) as store:
                if not store.store.logs:
                    store.create()
                log = store.log()
                log.transactions.settle(log.log_end_offset)
                assert before in (None, view(log)), "a restart finds what was there"
                for step in remaining:
                    if step[0] == "reopen":
                        await store.until_flushed(log)
                        before = view(log)
                        opening = True
                        break
                    await self._perform(store, log, step)
        async with opened(self._directory) as store:
            store.log().transactions.settle(store.log().log_end_offset)
            self._follow(store, store.log())

    async def _perform(self, store: OpenStore, log: PartitionLog, step: tuple[object, ...]) -> None:
        match step:
            case ("write", int(producer), bytes(key)):
                records = self._record(key)
                place = (producer, 0, self._sequences[producer])
                data = encode_batch([records], attributes=TRANSACTIONAL, producer=place)
                self._sequences[producer] += 1
                log.append_as_leader(data, EPOCH, AppendOrigin.TRANSACTIONAL_CLIENT)
            case ("plain", bytes(key)):
                log.append_as_leader(encode_batch([self._record(key)]), EPOCH)
            case ("end", int(producer), bool(committed)):
                marker = encode_marker(EndMarker(producer, 0, committed, 0), NOW_MS)
                log.append_as_leader(marker, EPOCH, AppendOrigin.MARKERS)
                log.transactions.settle(log.log_end_offset)
            case ("clean",):
                await seal(store)
                before = view(log)
                with contextlib.suppress(CleaningInterrupted):  # What was done by then is right.
                    await clean(store, log, now_ms=self._now_ms)
                assert view(log) == before
                self._now_ms += DELETE_RETENTION_MS
            case ("expire",):
                await store.until_flushed(log)
                log.producers.expire(0, 0)
                log.producers.expire(1, 0, log.transactions.ongoing)

    def _record(self, key: bytes) -> Record:
        self._written += 1
        return Record(0, NOW_MS, key, b"%d" % self._written)

    def _follow(self, store: OpenStore, log: PartitionLog) -> None:
        follower = store.create("follower")
        if log.log_end_offset:
            follower.append_as_follower(everything(log))
        follower.transactions.settle(follower.log_end_offset)
        assert view(follower) == view(log)


@settings(
    max_examples=examples(6),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(steps=_STEPS)
async def test_kip_98_cleaning_changes_nothing_for_those_who_read_what_was_committed(
    steps: list[tuple[object, ...]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        await History(Path(folder)).run(steps)
