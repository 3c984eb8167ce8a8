"""The producers that a partition knows: DescribeProducers shows what keeps readers waiting."""

import asyncio
from collections.abc import Mapping
from typing import Final, NamedTuple

from quorate.broker.log import ColdRead, PartitionLog
from quorate.broker.log.batches.record_batch import BatchHeader, read_header
from quorate.broker.log.segments.damage import DamagedBatch
from quorate.broker.log.state.producer_state_manager import ProducerStateEntry

NOT_KNOWN: Final = -1

_STATES_PER_BREATH: Final = 100
"""The number of states looked up before other tasks have their turn: each takes a read."""


class ProducerState(NamedTuple):
    """One producer in one partition. A field is -1 if there is no such value, or no longer.

    ``last_timestamp_ms`` is that of the newest record of its last batch, by its own clock.
    ``coordinator_epoch`` belongs to the coordinator that ended its last transaction.
    ``transaction_start_offset`` is where its transaction that is under way begins.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_start_offset: int


async def producer_states(log: PartitionLog, *, only_open: bool = False) -> list[ProducerState]:
    """Return the producers with a transaction under way, by where it began, then the others by id.

    With ``only_open`` the others are left out.
    """
    ongoing = dict(log.transactions.ongoing)
    known: Mapping[int, ProducerStateEntry] = dict(log.producers.items())
    ids = list(ongoing)
    if not only_open:
        ids += sorted(each for each in known if each not in ongoing)
    states = []
    for count, producer_id in enumerate(ids, start=1):
        start_offset = ongoing.get(producer_id, NOT_KNOWN)
        producer = known.get(producer_id)
        if producer is None:
            states.append(await _forgotten(log, producer_id, start_offset))
        else:
            last_offset = producer.recent[-2] if producer.recent else start_offset
            last = await _batch_at(log, last_offset)
            states.append(
                ProducerState(
                    producer_id,
                    producer.epoch,
                    max(NOT_KNOWN, producer.last_sequence),
                    NOT_KNOWN if last is None else last.max_timestamp,
                    producer.coordinator_epoch,
                    start_offset,
                )
            )
        if count % _STATES_PER_BREATH == 0:
            await asyncio.sleep(0)
    return states


async def _forgotten(log: PartitionLog, producer_id: int, start_offset: int) -> ProducerState:
    """Return the state of a producer that is known by its old transaction alone."""
    first = await _batch_at(log, start_offset)
    epoch = NOT_KNOWN if first is None else first.producer_epoch
    timestamp_ms = NOT_KNOWN if first is None else first.max_timestamp
    return ProducerState(producer_id, epoch, NOT_KNOWN, timestamp_ms, NOT_KNOWN, start_offset)


async def _batch_at(log: PartitionLog, offset: int) -> BatchHeader | None:
    """Return the header of the batch that holds ``offset``, or None if it is gone or damaged."""
    wait = False
    while log.log_start_offset <= offset < log.log_end_offset:
        try:
            read = log.read(offset, 1, log.log_end_offset, wait=wait)
        except ColdRead as cold:
            await cold.load()
            wait = True
            continue
        except DamagedBatch:
            return None
        if not read.chunks:
            return None
        return read_header(b"".join(read.chunks))
    return None
