"""Where time travel begins: the snapshot that a voter's journal goes on from."""

from pathlib import Path

from metadata_log.image import Image
from metadata_log.snapshot import encode_snapshot
from metadata_log.types import MetadataOffset
from quorum.raft.snapshot_file import read_chunks, read_position
from quorum.raft.snapshots import SNAPSHOT_FILE
from quorum.shared_snapshot import EncodedSnapshot


def oldest_state(folder: Path) -> EncodedSnapshot:
    """The snapshot in a running voter's data folder; without one, the state before everything.

    Entries from ``next_offset`` on are in the journal, unless it was compacted meanwhile.

    Raises:
        SnapshotCorrupt: it is damaged.
    """
    path = folder / SNAPSHOT_FILE
    try:
        position = read_position(path)
        chunks = list(read_chunks(path))
    except FileNotFoundError:
        # Entry 1 is the library's own; no transaction has ever been there.
        return EncodedSnapshot(MetadataOffset(0), MetadataOffset(2), list(encode_snapshot(Image())))
    offset = MetadataOffset(position.last_index)
    return EncodedSnapshot(offset, MetadataOffset(offset + 1), chunks)
