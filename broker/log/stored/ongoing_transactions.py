"""Determines which transactions are open at some offset of a log, by reading its batches."""

import asyncio
from typing import Final

from quorate.broker.log.batches.control_batches import decode_marker
from quorate.broker.log.batches.record_batch import iterate_batches
from quorate.broker.log.options import ColdRead
from quorate.broker.log.state.transactions import PartitionTransactions, record_batch_state
from quorate.broker.log.stored.stored_log import StoredLog

_READ_BYTES: Final = 1 << 20


async def ongoing_at(log: StoredLog, end_offset: int) -> list[tuple[int, int]]:
    """Return the transactions that are open at ``end_offset``: producer id, first offset.

    All of the log before it is read. This is only needed where committed batches are truncated.

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
            record_batch_state(None, found, header, header.base_offset, marker)
        at, wait = read.next_offset, False
        found.settle(at)
        await asyncio.sleep(0)
    return list(found.ongoing.items())
