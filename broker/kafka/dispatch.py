"""From a frame to a request that can run, and from its outcome to the bytes of the answer."""

import functools
import struct
from collections.abc import Mapping
from typing import Final

from broker.errors import KafkaError
from broker.kafka import codec
from broker.kafka.api_versions import API_VERSIONS_KEY, refuse_api_versions
from broker.kafka.cursor import Cursor, MalformedRequest
from broker.kafka.layouts import api_key_map
from broker.kafka.requests import Api, Buffers, CloseConnection, Request, RequestContext
from broker.kafka.services import KafkaServices
from quorate_proto.v1 import errors_pb2

_REQUEST_HEADER: Final = struct.Struct(">hhi")
_ANSWER_HEADER: Final = struct.Struct(">ii")
_NO_TAGS: Final = b"\0"


class Dispatcher:
    """The one table of APIs at work: what is not in it is neither advertised nor answered."""

    def __init__(self, services: KafkaServices, apis: Mapping[int, Api]) -> None:
        self._services = services
        self._apis = apis

    def decode(self, frame: memoryview, client_host: str) -> Request:
        """A request ready to run.

        Raises:
            MalformedRequest: it can't be decoded, or not even its refusal could be.
        """
        cursor = Cursor(frame)
        key, version, correlation_id = cursor.unpack(_REQUEST_HEADER)
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
        context = RequestContext(version, client_id, client_host)
        return Request(
            api_name=api.name,
            correlation_id=correlation_id,
            cost_bytes=len(frame) + api.answer_bytes_max(self._services, body),
            abandonable=api.abandonable,
            flexible_answer_header=flexible and key != API_VERSIONS_KEY,
            run=functools.partial(self._run, api, context, body),
        )

    async def _run(self, api: Api, context: RequestContext, body: object) -> Buffers:
        try:
            return await api.handle(self._services, context, body)
        except KafkaError as error:
            if not codec.response_has_error_code(api.name, context.version):
                raise CloseConnection(f"{api.name}: {error}") from error
            return [codec.encode_failure(api.name, context.version, error.code, error.message)]

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


def _can_be_refused(name: str, version: int) -> bool:
    return codec.has_schema(name, version) and codec.response_has_error_code(name, version)


def frame_answer(request: Request, body: Buffers) -> Buffers:
    """Size, header and body, ready to be written."""
    tags = _NO_TAGS if request.flexible_answer_header else b""
    size = 4 + len(tags) + sum(map(len, body))
    return [_ANSWER_HEADER.pack(size, request.correlation_id) + tags, *body]
