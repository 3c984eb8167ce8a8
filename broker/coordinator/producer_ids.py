"""Producer ids: handed out one by one here, taken from the controller in blocks.

A block that was taken and not used up before a restart is lost; ids are never handed out twice,
because the controller commits the end of a block before it answers.
"""

import asyncio
from typing import Protocol

from broker.errors import KafkaError, error_name
from quorate_proto.v1 import admin_pb2, errors_pb2


class BlockSource(Protocol):
    """Where blocks come from: the controller, here or one hop away."""

    async def allocate_producer_ids(self) -> admin_pb2.AllocateProducerIdsResponse:
        """``count`` ids from ``first_producer_id`` on; or ``error_code``, Kafka's, and none."""


class ProducerIds:
    """The ids of one broker. Concurrent callers share one request for a block."""

    def __init__(self, source: BlockSource) -> None:
        self._source = source
        self._next = 0
        self._end = 0
        self._refill = asyncio.Lock()

    async def take(self) -> int:
        """An id that nobody has had.

        Raises:
            KafkaError: the controller gave no block; the code makes producers ask again.
        """
        async with self._refill:
            if self._next == self._end:
                await self._take_block()
            producer_id = self._next
            self._next += 1
            return producer_id

    async def _take_block(self) -> None:
        block = await self._source.allocate_producer_ids()
        if block.error_code:
            raise KafkaError(
                errors_pb2.COORDINATOR_LOAD_IN_PROGRESS,
                f"the controller gave out no producer ids ({error_name(block.error_code)}); retry",
            )
        self._next = block.first_producer_id
        self._end = block.first_producer_id + block.count
