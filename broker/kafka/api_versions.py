"""ApiVersions (18): the APIs and features that this broker serves."""

import re
from collections.abc import Iterable
from typing import Any, Final

from quorate.broker.kafka.admin import kafka_features
from quorate.broker.kafka.connection.requests import Api, Handler, RequestContext
from quorate.broker.kafka.services import KafkaServices
from quorate.broker.kafka.wire import codec
from quorate.broker.kafka.wire.codec import Message
from quorate.metadata_log.image import Image
from quorate_proto.v1 import errors_pb2

API_VERSIONS_KEY: Final = 18

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9.-]{0,127}")


def handler_for(apis: Iterable[Api]) -> Handler:
    """Return the handler that advertises exactly ``apis``."""
    ranges = [_range(api) for api in apis]

    async def handle(services: KafkaServices, context: RequestContext, body: Any) -> Message:  # noqa: ANN401
        _remember_software(context, body)
        return _response(errors_pb2.NONE, ranges, services.images.image, context.version)

    return handle


def _remember_software(context: RequestContext, body: Message) -> None:
    """Remember what software the client says it is (KIP-511). What is not of Kafka's form is
    passed over.
    """
    name, version = body.get("client_software_name"), body.get("client_software_version")
    if name and version and _SOFTWARE.fullmatch(name) and _SOFTWARE.fullmatch(version):
        context.connection.software_name = name
        context.connection.software_version = version


def refuse_api_versions(api: Api) -> bytes:
    """Return the response to a version that is not served.

    It is in version 0, which every client can read. It contains the versions of ApiVersions itself,
    from which the client picks one (KIP-511).
    """
    values = _response(errors_pb2.UNSUPPORTED_VERSION, [_range(api)])
    return codec.encode_response("api_versions", 0, values)


def _range(api: Api) -> Message:
    return {"api_key": api.key, "min_version": api.min_version, "max_version": api.max_version}


def _response(
    error_code: int, ranges: list[Message], image: Image | None = None, version: int = 0
) -> Message:
    values: Message = {"error_code": error_code, "api_keys": ranges, "throttle_time": 0}
    if image is not None:
        values |= _features(image, version)
    return values


def _features(image: Image, version: int) -> Message:
    """Return the features that this broker understands and those in force (KIP-584)."""
    return {
        "supported_features": kafka_features.supported(version),
        "finalized_features_epoch": image.offset,
        "finalized_features": kafka_features.finalized(image),
    }
