"""What a stopped broker has on its disk."""

from pathlib import Path

from broker.log import LogOptions, LogStore
from metadata_log.types import TopicIdPartition


async def stored_bytes(folder: Path) -> dict[TopicIdPartition, bytes]:
    """Every log in the folder of a stopped broker, by reading it as the broker would."""
    store = await LogStore.open(
        folder, LogOptions(), on_flushed=lambda logs: None, on_failed=lambda error: None
    )
    try:
        found = {}
        for tip, log in store.logs.items():
            data, at = bytearray(), log.log_start_offset
            while at < log.log_end_offset:
                read = log.read(at, 1 << 20, log.log_end_offset)
                data += b"".join(read.chunks)
                at = read.next_offset
            found[tip] = bytes(data)
        return found
    finally:
        await store.close()
