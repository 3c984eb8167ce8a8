"""What a partition knows of its producers, for people who look for what keeps readers waiting."""

import asyncio
from collections.abc import Mapping
from typing import Final, NamedTuple

from broker.log import ColdRead, PartitionLog
from broker.log.damage import DamagedBatch
from broker.log.producers import Producer
from broker.log.record_batch import BatchHeader, read_header

NOT_KNOWN: Final = -1

_STATES_PER_BREATH: Final = 100
"""Each takes a read; then others have their turn."""


class ProducerState(NamedTuple):
    """One producer in one partition; -1: there is none, or it is known no more.

    ``last_timestamp_ms``: of the newest record of its last batch, by its own clock.
    ``coordinator_epoch``: of who ended its last transaction.
    ``transaction_start_offset``: of its transaction that is under way.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_start_offset: int

    @property
    def has_transaction(self) -> bool:
        return self.transaction_start_offset != NOT_KNOWN


async def producer_states(log: PartitionLog, *, only_open: bool = False) -> list[ProducerState]:
    """Those with a transaction under way first, by where it began; the others by their id.

    ``only_open``: not the others.
    """
    ongoing = dict(log.transactions.ongoing)
    known: Mapping[int, Producer] = dict(log.producers.items())
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
    """Of one whose transaction is so old that it alone is known: as its first batch has it."""
    first = await _batch_at(log, start_offset)
    epoch = NOT_KNOWN if first is None else first.producer_epoch
    timestamp_ms = NOT_KNOWN if first is None else first.max_timestamp
    return ProducerState(producer_id, epoch, NOT_KNOWN, timestamp_ms, NOT_KNOWN, start_offset)


async def _batch_at(log: PartitionLog, offset: int) -> BatchHeader | None:
    """The batch that holds ``offset``; None if it is there no more, or damaged."""
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
