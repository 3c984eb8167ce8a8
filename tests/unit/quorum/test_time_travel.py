"""The image at an offset, and the oldest state that a voter keeps."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from quorate.common.types import MetadataOffset
from quorate.metadata_log.codec import decode_transaction
from quorate.metadata_log.image import Image
from quorate.metadata_log.snapshot.snapshot import decode_snapshot, encode_snapshot
from quorate.quorum.client.watch import SnapshotLoaded, TransactionsApplied, WatchEvent, image_at
from quorate.quorum.quorum_errors import OffsetUnavailable
from quorate.quorum.raft.snapshot_store import SNAPSHOT_FILE
from quorate.quorum.raft.storage.snapshot_file import SnapshotPosition, write_snapshot
from quorate.quorum.voter.watch_sources import oldest_state
from tests.support.metadata import MetadataLogBuilder


@pytest.fixture
def log() -> MetadataLogBuilder:
    log = MetadataLogBuilder()
    for broker_id in (1, 2, 3):
        log.start_broker(broker_id)
    log.elect_controller(1)
    return log


async def events(
    log: MetadataLogBuilder, kept: Image, per_event: int = 2
) -> AsyncIterator[WatchEvent]:
    """``kept``, then everything after it; a no-op at the very end."""
    yield SnapshotLoaded(kept)
    entries = [entry for entry in log.entries if entry.offset > kept.offset]
    for start in range(0, len(entries), per_event):
        piece = entries[start : start + per_event]
        decoded = [(entry.offset, decode_transaction(entry.transaction)) for entry in piece]
        yield TransactionsApplied(decoded, piece[-1].offset)
    yield TransactionsApplied([], MetadataOffset(log.image.offset + 1))


async def test_every_offset_has_its_image(log: MetadataLogBuilder) -> None:
    replay = MetadataLogBuilder(begun=False)
    for entry in log.entries:
        replay.apply(decode_transaction(entry.transaction))
        assert await image_at(events(log, Image()), entry.offset) == replay.image
    no_op = MetadataOffset(log.image.offset + 1)
    assert await image_at(events(log, Image()), no_op) == log.image


async def test_what_is_not_kept_or_not_written_is_said(log: MetadataLogBuilder) -> None:
    kept = await image_at(events(log, Image()), MetadataOffset(4))
    assert await image_at(events(log, kept), MetadataOffset(4)) == kept
    with pytest.raises(OffsetUnavailable, match="3 is not kept: the oldest state is that of 4"):
        await image_at(events(log, kept), MetadataOffset(3))
    beyond = MetadataOffset(log.image.offset + 2)
    with pytest.raises(OffsetUnavailable, match=f"not written yet: the log is at {beyond - 2}"):
        await image_at(events(log, kept), beyond)


def test_the_oldest_state_is_the_snapshot_the_journal_goes_on_from(
    log: MetadataLogBuilder, tmp_path: Path
) -> None:
    position = SnapshotPosition(log.image.offset + 3, 1)
    write_snapshot(tmp_path / SNAPSHOT_FILE, position, encode_snapshot(log.image))
    kept = oldest_state(tmp_path)
    assert (kept.offset, kept.next_offset) == (position.last_index, position.last_index + 1)
    assert decode_snapshot(kept.chunks) == log.image


def test_without_a_snapshot_it_is_the_state_before_everything(tmp_path: Path) -> None:
    kept = oldest_state(tmp_path)
    assert decode_snapshot(kept.chunks) == Image()
    assert kept.next_offset == 2, "the first entry is never a transaction"
