"""Carries out large requests in slices: their decoding, their items, and their responses.

Requests with few items never come here, unless their responses may be long. A response holds memory
from its first part until it is sent.
"""

import asyncio
from collections.abc import Awaitable
from typing import Any

from quorate.broker.common.errors import KafkaError
from quorate.broker.kafka.connection.answer_price import hold_bytes
from quorate.broker.kafka.connection.request_work import (
    ELEMENT_BYTES,
    PartedAnswer,
    RequestDivision,
)
from quorate.broker.kafka.connection.requests import Api, CloseConnection, RequestContext
from quorate.broker.kafka.services import KafkaServices
from quorate.broker.kafka.wire import stepwise
from quorate.broker.kafka.wire.primitives import (
    Buffers,
    Cursor,
    MalformedRequest,
    TooManyElements,
)
from quorate.broker.quota.client_memory import ResponseLease
from quorate_proto.v1 import errors_pb2


class LargeRequests:
    """Carries out the large requests of all connections of one server."""

    def __init__(self, services: KafkaServices) -> None:
        self._services = services

    async def decode(
        self, api: Api, version: int, frame: memoryview, begin: int, memory: ResponseLease
    ) -> tuple[Any, int]:
        """Decode a request whose body begins at ``begin``, and return it with the number of its
        elements. ``memory`` is held for them, once there is room.

        Raises:
            KafkaError: INVALID_REQUEST. The request is too large.
            CloseConnection: the bytes are not such a request.
        """
        work = api.work
        cursor = Cursor(frame, begin, work.elements_max)
        try:
            if len(frame) > work.frame_bytes_max:
                raise TooManyElements(
                    f"a request of {len(frame)} bytes: at most {work.frame_bytes_max}"
                )
            most = min(work.elements_max, len(frame) - begin)
            await self._services.memory.elements.grow(memory, most * ELEMENT_BYTES)
            body = await self._services.turns.carry_out(api.decode_body_in_steps(version, cursor))
        except TooManyElements as error:
            refusal: Exception = KafkaError(errors_pb2.INVALID_REQUEST, str(error))
        except MalformedRequest as error:
            reason = f"malformed request: {api.name} version {version}: {error}"
            refusal = CloseConnection(reason)
        else:
            return body, cursor.elements
        # It is raised here, so that it does not hold the error before it, whose traceback holds all
        # that was decoded. Its own traceback holds this frame, which must not hold it.
        try:
            raise refusal
        finally:
            del refusal

    async def carry_out(self, api: Api, context: RequestContext, body: object) -> Buffers:
        """Carry out a request that has many items, or whose response may be long.

        Raises:
            KafkaError: INVALID_REQUEST. The response would be too long.
        """
        division = api.work.division
        if division is not None:
            return await self._handle_in_parts(division, api, context, body)
        return await self._handle_long_answer(api, context, body)

    async def _handle_in_parts(
        self, division: RequestDivision, api: Api, context: RequestContext, body: object
    ) -> Buffers:
        """Carry out a large request part by part, and give way between its parts.

        Raises:
            KafkaError: INVALID_REQUEST. The response would be too long.
        """
        turns = self._services.turns
        answer = division.answer(api.name, context.version)
        overlapping: list[asyncio.Task[Any]] = []
        begun_s = asyncio.get_running_loop().time()
        await turns.give_way()
        for whole_part in division.parts(body):
            if api.work.waits_for_room:
                await self._services.replicas.wait_for_turn()
            part = whole_part if api.work.parts_overlap else _with_time_left(whole_part, begun_s)
            handling = api.handle(self._services, context, part)
            if api.work.parts_overlap:
                overlapping.append(asyncio.get_running_loop().create_task(handling))
                await asyncio.sleep(0)
            elif not await self._add(answer, handling, context):
                break
            await turns.give_way()
        if overlapping:
            await asyncio.wait(overlapping)
        for task in overlapping:
            await self._add(answer, task, context)
            await turns.give_way()
        return await turns.carry_out(answer.encode())

    async def _add(
        self, answer: PartedAnswer, response: Awaitable[Any], context: RequestContext
    ) -> bool:
        goes_on = answer.add(await response)
        await hold_bytes(self._services, context, answer.size)
        return goes_on

    async def _handle_long_answer(self, api: Api, context: RequestContext, body: object) -> Buffers:
        """Carry out a request whose response may be long, and encode it in slices. It is long if
        its handler held memory for it.

        Raises:
            KafkaError: INVALID_REQUEST. The response would be too long.
        """
        response = await api.handle(self._services, context, body)
        if not context.lease.held_bytes:
            return api.encode_body(context.version, response)
        encoded = bytearray()
        for _ in stepwise.encode_in_steps(api.name, context.version, response, encoded):
            if len(encoded) > context.lease.held_bytes:
                await hold_bytes(self._services, context, len(encoded))
            await self._services.turns.give_way()
        context.lease.keep(len(encoded))
        return [memoryview(encoded)]


def _with_time_left(part: Any, begun_s: float) -> Any:  # noqa: ANN401 - its handler's type
    """Return a part of a request that began at ``begun_s``, with what is left of its timeout."""
    if not isinstance(part, dict) or part.get("timeout", 0) <= 0:
        return part
    spent_ms = round((asyncio.get_running_loop().time() - begun_s) * 1_000)
    return {**part, "timeout": max(1, part["timeout"] - spent_ms)}
