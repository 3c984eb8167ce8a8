"""Producer ids: they are given out one by one, and taken from the controller in blocks.

The rest of a block is lost at a restart. No id is given out twice, because the controller commits
the end of a block before it answers.
"""

import asyncio

from quorate.broker.common.errors import KafkaError, error_name
from quorate.broker.control.controller_forwarder import ControllerForwarder
from quorate_proto.v1 import errors_pb2


class ProducerIds:
    """Gives out the producer ids of one broker. Concurrent callers share one request for a
    block."""

    def __init__(self, controller: ControllerForwarder) -> None:
        self._controller = controller
        self._next = 0
        self._end = 0
        self._refill = asyncio.Lock()

    async def take(self) -> int:
        """Return an unused producer id.

        Raises:
            KafkaError: the controller gave no block; the code makes producers retry.
        """
        async with self._refill:
            if self._next == self._end:
                await self._take_block()
            producer_id = self._next
            self._next += 1
            return producer_id

    async def _take_block(self) -> None:
        block = await self._controller.allocate_producer_ids()
        if block.error_code:
            raise KafkaError(
                errors_pb2.COORDINATOR_LOAD_IN_PROGRESS,
                f"the controller gave out no producer ids ({error_name(block.error_code)}); retry",
            )
        self._next = block.first_producer_id
        self._end = block.first_producer_id + block.count
