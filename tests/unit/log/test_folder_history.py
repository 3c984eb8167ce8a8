"""What a log folder remembers of itself over restarts (rule 8)."""

from pathlib import Path

from quorate.broker.log.checkpoints.folder_history import INCARNATIONS_MAX, FolderHistory
from quorate.broker.log.checkpoints.store_table import StoreTable
from quorate.common.types import LeaderEpoch, TopicId, TopicIdPartition
from tests.support.log_stores import batch, opened

LOST = TopicIdPartition(TopicId(b"t" * 16), 3)


def test_only_the_newest_incarnations_are_remembered() -> None:
    history = FolderHistory()
    ids = [bytes([number]) * 16 for number in range(INCARNATIONS_MAX + 2)]
    for incarnation_id in (*ids, ids[-1]):
        history = history.with_incarnation(incarnation_id)
    assert history.incarnations == tuple(ids[2:])


async def test_a_folder_knows_an_incarnation_as_soon_as_it_is_open(tmp_path: Path) -> None:
    """Nothing has to be closed: the process may be killed at once."""
    for number in (1, 2):
        async with opened(tmp_path, incarnation_id=bytes([number]) * 16) as store:
            known = store.store.history.incarnations
            assert known == tuple(bytes([one]) * 16 for one in range(1, number + 1))
            assert store.store._table.history().incarnations == known


async def test_lost_partitions_are_declared_until_that_is_handled(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.store.declare_lost([LOST])
        assert store.store._table.history().lost == (tuple(LOST),)
    async with opened(tmp_path) as store:
        assert store.store.history.lost == (tuple(LOST),)
        store.store.loss_handled()
    async with opened(tmp_path) as store:
        assert store.store.history.lost == ()


async def test_the_record_of_what_is_hosted_follows_the_logs(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        log = store.create()
        store.store.note_hosted_through(7)
        store.store.note_hosted_through(5)
        log.append_as_leader(batch(), LeaderEpoch(0))
        await store.until_flushed(log)
        assert store.store._table.history().hosted_through == 7
    async with opened(tmp_path) as store:
        assert store.store.history.hosted_through == 7


async def test_rule_8_a_log_below_its_checkpointed_high_watermark_says_so(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        log = store.create()
        log.append_as_leader(batch(), LeaderEpoch(0))
        await store.until_flushed(log)
        store.store.checkpoint_high_watermarks({log.tip: log.log_end_offset})
        number, end = log.number, log.log_end_offset
    async with opened(tmp_path) as store:
        assert not store.log().lacks_committed
    table = StoreTable.open(tmp_path)
    table.write_high_watermarks({number: end + 1})
    table.close()
    async with opened(tmp_path) as store:
        assert store.log().lacks_committed
        assert store.log().checkpointed_high_watermark == end
