"""Turns a frame into a request that can run, and the outcome of a request into the bytes of its
response.
"""

import functools
import struct
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

from quorate.broker.common.errors import KafkaError
from quorate.broker.config.security import FAILED_AUTHENTICATION_DELAY_MS
from quorate.broker.kafka.api_versions import API_VERSIONS_KEY, refuse_api_versions
from quorate.broker.kafka.connection.large_requests import LargeRequests
from quorate.broker.kafka.connection.request_task import RequestTask, Work
from quorate.broker.kafka.connection.request_work import ELEMENT_BYTES, FEW_ELEMENTS
from quorate.broker.kafka.connection.requests import (
    Api,
    Begun,
    ClientSession,
    CloseConnection,
    Request,
    RequestContext,
)
from quorate.broker.kafka.connection.sasl_apis import authenticate_bare
from quorate.broker.kafka.services import KafkaServices
from quorate.broker.kafka.wire import codec
from quorate.broker.kafka.wire.kio_layouts import api_key_map
from quorate.broker.kafka.wire.primitives import Buffers, Cursor, MalformedRequest, TooManyElements
from quorate.broker.quota.client_memory import ResponseLease
from quorate.broker.quota.client_quota_manager import NO_LIMITS, ClientLimits, TimedCoroutine
from quorate.broker.quota.shared_usage import SharedUsage
from quorate.broker.security.sasl_session import SaslSession
from quorate_proto.v1 import errors_pb2

_REQUEST_HEADER: Final = struct.Struct(">hhi")
_INT32: Final = struct.Struct(">i")
_RESPONSE_HEADER: Final = struct.Struct(">ii")
_NO_TAGS: Final = b"\0"
_PRODUCE: Final = 0
_FETCHES: Final = (1, 78)
"""Fetch, and ShareFetch."""


class RequestDispatcher:
    """Decodes requests by the table of APIs, and runs their handlers.

    An API that is not in the table is not advertised, and requests for it are refused.
    """

    def __init__(self, services: KafkaServices, apis: Mapping[int, Api]) -> None:
        self._services = services
        self._apis = apis
        self._large = LargeRequests(services)

    def decode(self, frame: memoryview, session: ClientSession) -> Request:
        """Decode a frame into a request that is ready to run.

        Raises:
            MalformedRequest: neither the request nor a refusal in its version can be decoded.
        """
        sasl = session.sasl
        if sasl is not None and sasl.bare_tokens:
            delay_ms = self._services.config[FAILED_AUTHENTICATION_DELAY_MS]
            return _bare_token(frame, sasl, session.client_host, delay_ms)
        cursor = Cursor(frame)
        key, version, correlation_id = cursor.unpack(_REQUEST_HEADER)
        if sasl is not None and (reason := sasl.refusal_of(key)) is not None:
            return _illegal_sasl_state(key, version, correlation_id, reason)
        api = self._apis.get(key)
        if api is None or not api.min_version <= version <= api.max_version:
            return self._unsupported(key, version, correlation_id)
        flexible = version >= api.first_flexible_version
        try:
            client_id = cursor.text(flexible=False) or ""
            if flexible:
                cursor.skip_tagged_fields()
            body_at = cursor.offset
            body, elements = _decode_small(api, version, cursor)
        except MalformedRequest as error:
            raise MalformedRequest(f"{api.name} version {version}: {error}") from None
        limits = self._limits_of(session, client_id)
        context = RequestContext(
            version,
            client_id,
            session.client_host,
            session.certified if sasl is None else sasl.principal,
            session.listener,
            sasl,
            lease=ResponseLease(self._services.memory.responses),
            connection=session.connection,
            fetch_bytes_max=limits.fetch_bytes_max,
        )
        cost_bytes = len(frame)
        if elements is None:
            run = functools.partial(self._run_large, limits, api, context, frame, body_at)
            elements = 0
            alone = True
        else:
            run = functools.partial(self._run, limits, api, context, body, elements, cost_bytes)
            is_large = api.work.division is not None and elements > api.work.whole_elements_max
            alone = is_large or (not api.is_pipelined and api.changes_state)
            if api.response_bytes_max is not None:
                cost_bytes += api.response_bytes_max(self._services, body)
        begin: Begun | None = None
        if api.is_eager:
            begin = functools.partial(_eager, run)
        elif api.begin is not None and limits is NO_LIMITS and not alone:
            begin = functools.partial(api.begin, self._services, context, body)
        return Request(
            api_name=api.name,
            correlation_id=correlation_id,
            cost_bytes=cost_bytes,
            abandonable=api.abandonable,
            flexible_response_header=flexible and key != API_VERSIONS_KEY,
            run=run,
            alone=alone,
            pipelined=api.is_pipelined,
            decoded_bytes=elements * ELEMENT_BYTES if elements > FEW_ELEMENTS else 0,
            begin=begin,
            throttle=context.throttle,
            lease=context.lease,
            turn=None
            if limits is NO_LIMITS
            else self._services.quotas.turn_of(limits, _used_by(limits, api, version)),
        )

    def _limits_of(self, session: ClientSession, client_id: str) -> ClientLimits:
        quotas = self._services.quotas
        # Requests that authenticate a client come from everybody, so they have no quotas.
        if quotas.are_set and session.is_authenticated:
            return quotas.limits_of(session.principal.name, client_id)
        return NO_LIMITS

    async def _run(
        self,
        limits: ClientLimits,
        api: Api,
        context: RequestContext,
        body: object,
        elements: int,
        frame_bytes: int,
    ) -> Buffers:
        """Carry out the request, and charge it to the client's quotas.

        The response contains the longest of all throttle times (Q11; KIP-13, KIP-124).
        """
        if limits is NO_LIMITS:
            encoded = await self._handle(api, context, body, elements)
        else:
            encoded = await self._handle_counted(limits, api, context, body, elements, frame_bytes)
        time_ms = context.throttle.time_ms
        if time_ms and encoded and (place := api.place_of_throttle(context.version)) is not None:
            _put_throttle_time(encoded, place, time_ms)
        return encoded

    async def _run_large(
        self,
        limits: ClientLimits,
        api: Api,
        context: RequestContext,
        frame: memoryview,
        begin: int,
    ) -> Buffers:
        """Decode a request whose body begins at ``begin`` in slices, and carry it out."""
        memory = ResponseLease(self._services.memory.elements)
        try:
            body, elements = await self._large.decode(api, context.version, frame, begin, memory)
            if api.work.is_long_poll:
                memory.keep(0)
            return await self._run(limits, api, context, body, elements, len(frame))
        except KafkaError as error:
            return _failed(api, context.version, error)
        finally:
            memory.keep(0)

    async def _handle(
        self, api: Api, context: RequestContext, body: object, elements: int
    ) -> Buffers:
        begun_s = time.perf_counter()
        try:
            if elements > api.work.whole_elements_max:
                return await self._large.carry_out(api, context, body)
            response = await api.handle(self._services, context, body)
            if api.encode is None:
                return api.encode_body(context.version, response)
            steps = api.encode(context.version, response)
            try:
                next(steps)
            except StopIteration as end:
                # Most responses are short: encoded in one step, they need no turn.
                encoded: Buffers = end.value
                return encoded
            return await self._services.turns.carry_out(steps)
        except KafkaError as error:
            return _failed(api, context.version, error)
        finally:
            self._services.figures.request_times[api.name].observe(time.perf_counter() - begun_s)

    async def _handle_counted(
        self,
        limits: ClientLimits,
        api: Api,
        context: RequestContext,
        body: object,
        elements: int,
        frame_bytes: int,
    ) -> Buffers:
        """Carry out the request under quotas.

        The bytes that count are those of whole Produce requests and whole Fetch responses. What is
        produced counts at once, so that requests by other connections of the client find it
        counted. A fetch that exceeds its quota still gets its response. Its client waits
        afterwards, which leads to the same rate.
        """
        now_ms = self._services.quotas.now_ms
        used = _used_by(limits, api, context.version)
        if api.key == _PRODUCE and used is not None:
            used.use(frame_bytes, now_ms())
        handling = self._handle(api, context, body, elements)
        if limits.time is None:
            encoded = await handling
        else:
            timed = TimedCoroutine(handling)
            encoded = await timed
        told_ms = context.throttle.time_ms
        if limits.time is not None:
            context.throttle.at_least(limits.time.use(timed.spent_ms, now_ms()))
        if used is not None:
            if api.key in _FETCHES:
                used.use(sum(map(len, encoded)), now_ms())
            elif api.key != _PRODUCE:
                used.mute(told_ms, now_ms())
            context.throttle.at_least(used.muted_ms(now_ms()))
        return encoded

    def _unsupported(self, key: int, version: int, correlation_id: int) -> Request:
        name = api_key_map.get(key)
        if key == API_VERSIONS_KEY:
            body, flexible = refuse_api_versions(self._apis[key]), False
        elif name is not None and _can_be_refused(name, version):
            message = f"{name} version {version} is not served; ask ApiVersions which are"
            code = errors_pb2.UNSUPPORTED_VERSION
            body = codec.encode_failure(name, version, code, message)
            flexible = codec.request_is_flexible(name, version)
        else:
            raise MalformedRequest(f"API key {key} ({name}) version {version} is not served")

        async def refuse() -> Buffers:
            return [body]

        return Request(
            api_name=name or str(key),
            correlation_id=correlation_id,
            cost_bytes=len(body),
            abandonable=True,
            flexible_response_header=flexible,
            run=refuse,
        )


def _eager(run: Callable[[], Coroutine[Any, Any, Buffers]]) -> Work:
    return RequestTask(run())


def _used_by(limits: ClientLimits, api: Api, version: int) -> SharedUsage | None:
    """Return the usage, other than that of time, that a request counts for, if its client has
    such a quota. Controller mutations of new clients are refused by the controller (Q4), so only
    those of old clients wait here.
    """
    if api.key == _PRODUCE:
        return limits.produced
    if api.key in _FETCHES:
        return limits.fetched
    return limits.mutations if version < api.refused_over_quota_from else None


def _decode_small(api: Api, version: int, cursor: Cursor) -> tuple[Any, int | None]:
    """Decode the body of a request, and return it with the number of its elements.

    If there are too many elements to decode them without a break, there is no body and no number.
    """
    if cursor.size > api.work.frame_bytes_max:
        return None, None
    cursor.elements, cursor.elements_max = 0, api.work.decoded_at_once
    try:
        body = None if api.decode_small is None else api.decode_small(version, cursor)
        if body is None:
            body = api.decode_body(version, cursor)
        return body, cursor.elements
    except TooManyElements:
        return None, None


def _bare_token(frame: memoryview, sasl: SaslSession, client_host: str, delay_ms: int) -> Request:
    """Return the request of a SASL token that follows a SaslHandshake of version 0."""

    async def run() -> Buffers:
        return [await authenticate_bare(sasl, bytes(frame), client_host, delay_ms)]

    return Request(
        api_name="SASL token",
        correlation_id=0,
        cost_bytes=len(frame),
        abandonable=True,
        flexible_response_header=False,
        run=run,
        bare=True,
    )


def _illegal_sasl_state(key: int, version: int, correlation_id: int, reason: str) -> Request:
    """Return the refusal of a request that the client may not send in the current SASL state.

    The client receives an error code if the response of the API has a field for one, and then the
    connection is closed.
    """
    name = api_key_map.get(key)
    encoded, flexible = b"", False
    if name is not None and _can_be_refused(name, version):
        encoded = codec.encode_failure(name, version, errors_pb2.ILLEGAL_SASL_STATE, reason)
        flexible = codec.request_is_flexible(name, version) and key != API_VERSIONS_KEY

    async def refuse() -> Buffers:
        raise CloseConnection(reason, encoded)

    return Request(
        api_name=name or str(key),
        correlation_id=correlation_id,
        cost_bytes=len(encoded),
        abandonable=True,
        flexible_response_header=flexible,
        run=refuse,
    )


def _failed(api: Api, version: int, error: KafkaError) -> Buffers:
    """Return the response to a request that failed as a whole.

    Raises:
        CloseConnection: the response has no error code for the whole request.
    """
    if not codec.response_has_error_code(api.name, version):
        raise CloseConnection(f"{api.name}: {error}") from error
    return [codec.encode_failure(api.name, version, error.code, error.message)]


def _can_be_refused(name: str, version: int) -> bool:
    return codec.has_schema(name, version) and codec.response_has_error_code(name, version)


def _put_throttle_time(encoded: Buffers, place: int, time_ms: int) -> None:
    """Write ``time_ms`` into an encoded response that has its throttle_time_ms at ``place``.

    A negative place counts from the end of the first piece.
    """
    piece = bytearray(encoded[0])
    _INT32.pack_into(piece, place if place >= 0 else len(piece) + place, time_ms)
    encoded[0] = bytes(piece)


def frame_response(request: Request, body: Buffers) -> Buffers:
    """Return size, header and body of a response, ready to be written."""
    if request.bare:
        return [_INT32.pack(sum(map(len, body))), *body]
    tags = _NO_TAGS if request.flexible_response_header else b""
    size = 4 + len(tags) + sum(map(len, body))
    return [_RESPONSE_HEADER.pack(size, request.correlation_id) + tags, *body]
