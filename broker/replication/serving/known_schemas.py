"""The ids of schemas that the registry is known to have.

An id never gets another schema, so what is known stays known. What is not known is asked for again
each time: a schema may be registered a moment before its first record is produced.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeAlias

from quorate.broker.common.errors import KafkaError
from quorate_proto.v1 import errors_pb2

Ask: TypeAlias = Callable[[int], Awaitable[bool]]
"""Returns whether the registry has a schema id. It raises KafkaError if that is not known now."""


class KnownSchemas:
    """What one broker knows of the registry. All methods run on the event loop."""

    def __init__(self) -> None:
        self.ask: Ask = _nobody_to_ask
        """Asks the registry."""
        self._known: set[int] = set()
        self._asked: dict[int, asyncio.Task[bool]] = {}

    def has_all(self, ids: Iterable[int]) -> bool:
        """Return whether all ids are known without a question."""
        return self._known.issuperset(ids)

    async def first_unknown(self, ids: Iterable[int]) -> int | None:
        """Return an id that the registry does not have, or None if it has all.

        The questions end with the first such id: so what costs a question adds to what is known, or
        has the records refused.

        Raises:
            KafkaError: it cannot be found out now.
        """
        for schema_id in ids:
            if schema_id not in self._known and not await self._is_there(schema_id):
                return schema_id
        return None

    def close(self) -> None:
        """Give up all questions."""
        for task in self._asked.values():
            task.cancel()

    async def _is_there(self, schema_id: int) -> bool:
        task = self._asked.get(schema_id)
        if task is None:
            task = self._asked[schema_id] = asyncio.ensure_future(self._answer(schema_id))
            task.add_done_callback(lambda _: self._asked.pop(schema_id, None))
        return await asyncio.shield(task)

    async def _answer(self, schema_id: int) -> bool:
        is_there = await self.ask(schema_id)
        if is_there:
            self._known.add(schema_id)
        return is_there


async def _nobody_to_ask(schema_id: int) -> bool:
    raise KafkaError(
        errors_pb2.REQUEST_TIMED_OUT, f"schema id {schema_id} cannot be looked up before the start"
    )
