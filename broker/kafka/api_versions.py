"""ApiVersions (18): what this broker serves."""

from collections.abc import Iterable
from typing import Any, Final

from broker.kafka import codec
from broker.kafka.codec import Message
from broker.kafka.requests import Api, Buffers, Handler, RequestContext
from broker.kafka.services import FeaturesInForce, KafkaServices
from metadata_log.features import FEATURES, LEAST_LEVEL
from quorate_proto.v1 import errors_pb2

API_VERSIONS_KEY: Final = 18


def handler_for(apis: Iterable[Api]) -> Handler:
    """The handler that advertises exactly ``apis``."""
    ranges = [_range(api) for api in apis]

    async def handle(services: KafkaServices, context: RequestContext, body: Any) -> Buffers:  # noqa: ANN401
        return [_encode(context.version, errors_pb2.NONE, ranges, services.features())]

    return handle


def refuse_api_versions(api: Api) -> bytes:
    """Answer to a version that is not served: in version 0, which every client can read, with the
    versions of ApiVersions itself, from which the client picks (KIP-511)."""
    return _encode(0, errors_pb2.UNSUPPORTED_VERSION, [_range(api)])


def _range(api: Api) -> Message:
    return {"api_key": api.key, "min_version": api.min_version, "max_version": api.max_version}


def _encode(
    version: int, error_code: int, ranges: list[Message], features: FeaturesInForce | None = None
) -> bytes:
    values: Message = {"error_code": error_code, "api_keys": ranges, "throttle_time": 0}
    if features is not None:
        values |= _features(features)
    return codec.encode_response("api_versions", version, values)


def _features(features: FeaturesInForce) -> Message:
    """What this broker understands, and what is in force (KIP-584)."""
    return {
        "supported_features": [
            {"name": name, "min_version": LEAST_LEVEL, "max_version": feature.newest}
            for name, feature in FEATURES.items()
        ],
        "finalized_features_epoch": features.metadata_offset,
        "finalized_features": [
            {"name": name, "max_version_level": level, "min_version_level": level}
            for name, level in sorted(features.levels.items())
        ],
    }
