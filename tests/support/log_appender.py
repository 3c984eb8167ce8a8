"""A process that appends to a log store until it is killed; run with ``python -m``.

Prints one line per report of the store: for every log ``partition:flushed_offset``. What it has
printed is acknowledged. Arguments: folder, log.flush, segment bytes, seed; and, to make the disk
full, the largest file size in bytes.
"""

import asyncio
import contextlib
import random
import resource
import sys
from collections.abc import Sequence
from pathlib import Path

from quorate.broker.common.errors import KafkaError
from quorate.broker.log import LogCallbacks, LogManager, LogOptions, StoredLog
from quorate.broker.log.options import Flush
from quorate.common.types import LeaderEpoch, TopicId, TopicIdPartition
from tests.support.log_stores import batch

PARTITIONS = 5
TOPIC_ID = TopicId(b"crash-test-topic")


def payload(partition: int, offset: int) -> bytes:
    """The batch at ``offset`` of a partition, so that a reader can tell if it is the right one."""
    size = random.Random(partition * 1_000_003 + offset).choice([50, 2000, 20_000, 300_000])
    return batch(1, size, seed=partition << 32 | offset)


async def append_for_ever(directory: Path, flush: Flush, segment_bytes: int, seed: int) -> None:
    out = sys.stdout

    def flushed(logs: Sequence[StoredLog]) -> None:
        out.write(" ".join(f"{log.tip.partition}:{log.flushed_offset}" for log in logs) + "\n")
        out.flush()

    def failed(error: Exception) -> None:
        out.write(f"failed {error}\n")
        out.flush()

    options = LogOptions(
        flush=flush,
        segment_bytes=segment_bytes,
        max_pending_bytes=1 << 20,
        reserve_bytes=64 << 10,
    )
    store = await LogManager.open(directory, options, LogCallbacks(flushed, failed))
    logs = [store.create(TopicIdPartition(TOPIC_ID, p), "crash") for p in range(PARTITIONS)]
    chance = random.Random(seed)
    with contextlib.suppress(KafkaError):
        while True:
            for _ in range(chance.randrange(1, 8)):
                log = chance.choice(logs)
                records = payload(log.tip.partition, log.log_end_offset)
                log.append_as_leader(records, LeaderEpoch(log.log_end_offset // 50))
            await store.writer.wait_for_room()
            await asyncio.sleep(0)
    await store.close()


def main() -> None:
    directory, flush, segment_bytes, seed, *limit = sys.argv[1:]
    if limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit[0]), int(limit[0])))
    mode: Flush = "sync" if flush == "sync" else "os"
    asyncio.run(append_for_ever(Path(directory), mode, int(segment_bytes), int(seed)))


if __name__ == "__main__":
    main()
