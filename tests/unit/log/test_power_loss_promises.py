"""What the power loss tests take to be promised, no more and no less."""

from pathlib import Path

from tests.support.log_stores import EPOCH, batch, opened
from tests.support.power_loss.load import sealed_end
from tests.support.power_loss.promises import WRITTEN, Promises, Said


async def test_a_log_that_begins_inside_an_unsealed_batch_is_sealed_nowhere(tmp_path: Path) -> None:
    async with opened(tmp_path, "os") as store:
        log = store.create()
        log.append_as_leader(batch(5), EPOCH)
        await store.until_flushed(log)
        await log.start_at(3)
        assert sealed_end(log) == 3
        log.append_as_leader(batch(1), EPOCH)
        await store.until_flushed(log)
        assert sealed_end(log) == 3
        await store.store.writer.roll()
        await store.store.housekeeping.idle()
        assert sealed_end(log) == 6
        log.append_as_leader(batch(1), EPOCH)
        await store.until_flushed(log)
        assert (sealed_end(log), log.log_end_offset) == (6, 7)


def test_what_is_flushed_while_a_cut_waits_for_its_turn_is_not_promised() -> None:
    """A truncation waits for a rewrite to be done, and the writer goes on meanwhile."""
    promises = Promises("sync")
    said = [Said("create", "log"), Said("cutting", "log", 40), Said("flushed", "log", 43)]
    for each in [*said, Said("cut", "log", 40)]:
        promises.note(each)
    assert promises.logs["log"].durable_end == 40
    promises.note(Said("flushed", "log", 42))
    assert promises.logs["log"].durable_end == 42


def test_what_was_sealed_outlives_a_kill_and_then_a_power_loss() -> None:
    promises = Promises("os")
    batches = [(0, 4, 7, WRITTEN), (5, 9, 7, WRITTEN)]
    for said in (
        Said("create", "log"),
        Said("append", "log", batches=batches),
        Said("flushed", "log", 10),
        Said("sealed", "log", 5),
        Said("found", "log", 0, batches),
        Said("opened"),
    ):
        promises.note(said)
    assert (promises.logs["log"].sealed_end, promises.logs["log"].durable_end) == (5, 10)
