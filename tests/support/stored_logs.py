"""Reads the logs that a stopped broker has on its disk."""

from collections.abc import Mapping
from pathlib import Path

from quorate.broker.log import LogCallbacks, LogManager, LogOptions, PartitionLog
from quorate.broker.log.batches.record_batch import read_header
from quorate.common.types import TopicIdPartition

Batches = Mapping[int, bytes]
"""Base offset → bytes, in order."""


async def stored_bytes(folder: Path) -> dict[TopicIdPartition, bytes]:
    """Every log in the folder of a stopped broker, by reading it as the broker would."""
    return {tip: b"".join(log.values()) for tip, log in (await stored_batches(folder)).items()}


async def stored_batches(folder: Path) -> dict[TopicIdPartition, Batches]:
    """Return the logs as ``stored_bytes`` does, batch by batch."""
    store = await LogManager.open(
        folder, LogOptions(), LogCallbacks(lambda logs: None, lambda error: None)
    )
    try:
        return {tip: batches_of(log) for tip, log in store.logs.items()}
    finally:
        await store.close()


def batches_of(log: PartitionLog) -> Batches:
    """The batches of one open log."""
    found = {}
    at = log.log_start_offset
    while at < log.log_end_offset:
        read = log.read(at, 1 << 20, log.log_end_offset)
        data = memoryview(b"".join(read.chunks))
        while data:
            header = read_header(data)
            found[header.base_offset] = bytes(data[: header.size])
            data = data[header.size :]
        at = read.next_offset
    return found
