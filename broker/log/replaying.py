"""What a log tells of its transactions up to some offset, looked up in its batches once more."""

import asyncio
from typing import TYPE_CHECKING, Final

from broker.log.cold_read import ColdRead
from broker.log.control_batches import decode_marker
from broker.log.record_batch import iterate_batches
from broker.log.transactions import PartitionTransactions, take_note

if TYPE_CHECKING:
    from broker.log.partition_log import PartitionLog

_READ_BYTES: Final = 1 << 20


async def ongoing_at(log: "PartitionLog", end_offset: int) -> list[tuple[int, int]]:
    """The transactions that are under way at ``end_offset``: producer id, first offset.

    All of the log before it is read: asked for only where committed batches are cut off.

    Raises:
        KafkaError: a batch cannot be read.
    """
    found = PartitionTransactions(str(log))
    at, wait = log.log_start_offset, False
    while at < end_offset:
        try:
            read = log.read(at, _READ_BYTES, end_offset, wait=wait)
        except ColdRead as cold:
            await cold.load()
            wait = True
            continue
        if not read.chunks:
            break
        for header, data in iterate_batches(b"".join(read.chunks), str(log)):
            marker = decode_marker(header, data) if header.is_control else None
            take_note(None, found, header, header.base_offset, marker)
        at, wait = read.next_offset, False
        found.settle(at)
        await asyncio.sleep(0)
    return list(found.ongoing.items())
