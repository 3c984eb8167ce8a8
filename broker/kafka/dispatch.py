"""From a frame to a request that can run, and from its outcome to the bytes of the answer."""

import functools
import struct
import time
from collections.abc import Coroutine, Mapping
from typing import Any, Final

from broker.client_memory import AnswerLease
from broker.errors import KafkaError
from broker.kafka import codec
from broker.kafka.api_versions import API_VERSIONS_KEY, refuse_api_versions
from broker.kafka.cursor import Cursor, MalformedRequest
from broker.kafka.layouts import api_key_map
from broker.kafka.requests import Api, Buffers, CloseConnection, Request, RequestContext
from broker.kafka.sasl import authenticate_bare
from broker.kafka.services import KafkaServices
from broker.kafka.throttling import throttled
from broker.security.config import FAILED_AUTHENTICATION_DELAY_MS
from broker.security.door import ClientSession
from broker.security.sasl import SaslSession
from quorate_proto.v1 import errors_pb2

_REQUEST_HEADER: Final = struct.Struct(">hhi")
_SIZE: Final = struct.Struct(">i")
_ANSWER_HEADER: Final = struct.Struct(">ii")
_NO_TAGS: Final = b"\0"


class Dispatcher:
    """The one table of APIs at work: what is not in it is neither advertised nor answered."""

    def __init__(self, services: KafkaServices, apis: Mapping[int, Api]) -> None:
        self._services = services
        self._apis = apis

    def decode(self, frame: memoryview, session: ClientSession) -> Request:
        """A request ready to run.

        Raises:
            MalformedRequest: it can't be decoded, or not even its refusal could be.
        """
        sasl = session.sasl
        if sasl is not None and sasl.bare_tokens:
            return _bare_token(frame, sasl, self._services.config[FAILED_AUTHENTICATION_DELAY_MS])
        cursor = Cursor(frame)
        key, version, correlation_id = cursor.unpack(_REQUEST_HEADER)
        if sasl is not None and (reason := sasl.why_not(key)) is not None:
            return _out_of_order(key, version, correlation_id, reason)
        api = self._apis.get(key)
        if api is None or not api.serves(version):
            return self._unsupported(key, version, correlation_id)
        try:
            flexible = version >= api.first_flexible_version
            client_id = cursor.text(flexible=False) or ""
            if flexible:
                cursor.skip_tagged_fields()
            body = api.decode_body(version, cursor)
        except MalformedRequest as error:
            raise MalformedRequest(f"{api.name} version {version}: {error}") from None
        context = RequestContext(
            version,
            client_id,
            session.client_host,
            session.principal,
            session.listener,
            sasl,
            lease=AnswerLease(self._services.memory.responses),
        )
        return Request(
            api_name=api.name,
            correlation_id=correlation_id,
            cost_bytes=len(frame) + api.answer_bytes_max(self._services, body),
            abandonable=api.abandonable,
            flexible_answer_header=flexible and key != API_VERSIONS_KEY,
            run=functools.partial(self._run, api, context, body, len(frame)),
            throttle=context.throttle,
            lease=context.lease,
        )

    def _run(
        self, api: Api, context: RequestContext, body: object, frame_bytes: int
    ) -> Coroutine[Any, Any, Buffers]:
        handling = self._answer(api, context, body)
        return throttled(self._services.usage, api, context, frame_bytes, handling)

    async def _answer(self, api: Api, context: RequestContext, body: object) -> Buffers:
        begun_s = time.perf_counter()
        try:
            return await api.handle(self._services, context, body)
        except KafkaError as error:
            if not codec.response_has_error_code(api.name, context.version):
                raise CloseConnection(f"{api.name}: {error}") from error
            return [codec.encode_failure(api.name, context.version, error.code, error.message)]
        finally:
            self._services.figures.served(api.name, time.perf_counter() - begun_s)

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
            flexible_answer_header=flexible,
            run=refuse,
        )


def _bare_token(frame: memoryview, sasl: SaslSession, delay_ms: int) -> Request:
    """What follows a SaslHandshake of version 0."""

    async def run() -> Buffers:
        return [await authenticate_bare(sasl, bytes(frame), delay_ms)]

    return Request(
        api_name="SASL token",
        correlation_id=0,
        cost_bytes=len(frame),
        abandonable=True,
        flexible_answer_header=False,
        run=run,
        bare=True,
    )


def _out_of_order(key: int, version: int, correlation_id: int, reason: str) -> Request:
    """A request that the client may not make now: it is told so where its API can, and closed."""
    name = api_key_map.get(key)
    answer, flexible = b"", False
    if name is not None and _can_be_refused(name, version):
        answer = codec.encode_failure(name, version, errors_pb2.ILLEGAL_SASL_STATE, reason)
        flexible = codec.request_is_flexible(name, version) and key != API_VERSIONS_KEY

    async def refuse() -> Buffers:
        raise CloseConnection(reason, answer)

    return Request(
        api_name=name or str(key),
        correlation_id=correlation_id,
        cost_bytes=len(answer),
        abandonable=True,
        flexible_answer_header=flexible,
        run=refuse,
    )


def _can_be_refused(name: str, version: int) -> bool:
    return codec.has_schema(name, version) and codec.response_has_error_code(name, version)


def frame_answer(request: Request, body: Buffers) -> Buffers:
    """Size, header and body, ready to be written."""
    if request.bare:
        return [_SIZE.pack(sum(map(len, body))), *body]
    tags = _NO_TAGS if request.flexible_answer_header else b""
    size = 4 + len(tags) + sum(map(len, body))
    return [_ANSWER_HEADER.pack(size, request.correlation_id) + tags, *body]
