"""What a log asserts of its own batches: the log that breaks it is reported, the others go on."""

from pathlib import Path

import pytest

from quorate.broker.log.state.producer_state_manager import ProducerStateManager
from quorate.common.invariants import BrokenInvariant
from quorate.common.types import LeaderEpoch
from tests.support.log_stores import opened
from tests.support.record_batches import Record, encode_batch

EPOCH = LeaderEpoch(1)


def _batch(sequence: int, epoch: int = 0) -> bytes:
    return encode_batch([Record(0)], producer=(7, epoch, sequence))


async def test_a_batch_that_becomes_durable_twice_is_reported_and_other_logs_go_on(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path) as store:
        told: list[tuple[str, str]] = []
        store.on_damaged = lambda one, broken: told.append((one.topic, str(broken)))
        bad, good = store.create("bad"), store.create("good")
        bad.append_as_leader(_batch(0), EPOCH)
        good.append_as_leader(_batch(0), EPOCH)
        bad.flushed_offset = 1
        await store.until_flushed(good)
        assert good.flushed_offset == 1
        ((topic, message),) = told
        assert topic == "bad"
        assert "batches become durable in order" in message


async def test_a_batch_that_does_not_begin_at_the_log_end_is_not_appended(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        log = store.create("orders")
        log.append_as_leader(_batch(0), EPOCH)
        with pytest.raises(BrokenInvariant, match="begins at the log end"):
            log._append(_batch(1), 5, 5, 0, EPOCH)
        assert log.log_end_offset == 1


@pytest.mark.parametrize(("sequence", "epoch"), [(0, 1), (5, 0)])
async def test_no_sequence_is_appended_twice_even_if_it_was_taken_for_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sequence: int, epoch: int
) -> None:
    async with opened(tmp_path) as store:
        log = store.create("orders")
        log.append_as_leader(_batch(0, epoch=1), EPOCH)
        monkeypatch.setattr(
            ProducerStateManager, "find_duplicates", lambda _, batches: [None] * len(batches)
        )
        with pytest.raises(BrokenInvariant, match="no sequence is appended twice"):
            log.append_as_leader(_batch(sequence, epoch), EPOCH)
        assert log.log_end_offset == 1
