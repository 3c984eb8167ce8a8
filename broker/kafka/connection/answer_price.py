"""The memory of a response, which is held before the response is made.

A list of items takes several times the memory of its bytes on the wire, so what is held at first is
the memory of the items. When they are encoded, only the bytes are held, until they are sent.
"""

from typing import Final

from quorate.broker.common.errors import KafkaError
from quorate.broker.kafka.connection.requests import RequestContext
from quorate.broker.kafka.services import KafkaServices
from quorate_proto.v1 import errors_pb2

ITEM_BYTES: Final = 256
"""The memory of an item of a response: a dict with a few numbers."""

FEW_ITEMS: Final = 256
"""The number of items whose memory is not counted, because most responses have fewer."""


class AnswerPrice:
    """The memory of the items of one response."""

    __slots__ = ("_context", "_items", "_services")

    def __init__(self, services: KafkaServices, context: RequestContext) -> None:
        self._services = services
        self._context = context
        self._items = 0

    async def add(self, items: int) -> None:
        """Hold memory for more items, and wait until there is some.

        Raises:
            KafkaError: INVALID_REQUEST. The response would be too long.
        """
        self._items += items
        if self._items > FEW_ITEMS:
            await hold_bytes(self._services, self._context, self._items * ITEM_BYTES)


async def hold_bytes(services: KafkaServices, context: RequestContext, size: int) -> None:
    """Hold memory for a response that takes ``size`` bytes, and wait until there is some.

    Raises:
        KafkaError: INVALID_REQUEST. The response would be too long.
    """
    memory = services.memory.responses
    if size > memory.longest_bytes:
        raise KafkaError(
            errors_pb2.INVALID_REQUEST,
            f"the response would take more than {memory.longest_bytes} bytes: ask for less at once",
        )
    await memory.grow(context.lease, size)
