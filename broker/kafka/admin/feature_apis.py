"""The API UpdateFeatures (57): the controller raises or lowers levels (B4)."""

from typing import Final

from quorate.broker.changes.table import UPDATE_FEATURES
from quorate.broker.kafka.connection.requests import RequestContext
from quorate.broker.kafka.services import KafkaServices
from quorate.broker.kafka.wire.codec import Message
from quorate_proto.v1 import admin_pb2, errors_pb2

_UPGRADE: Final = 1
"""The upgrade type "upgrade". Types 2 and 3 are safe and unsafe downgrades; both are done only if
safe."""


async def update_features(
    services: KafkaServices, context: RequestContext, request: Message
) -> Message:
    asked = request["feature_updates"]
    response = await services.forwarder.forward(
        UPDATE_FEATURES,
        admin_pb2.UpdateFeaturesRequest(
            context=context.for_controller("UpdateFeatures", request["timeout"]),
            updates=[_update(one) for one in asked if one["max_version_level"] > 0],
            validate_only=request.get("validate_only", False),
        ),
        api_version=context.version,
    )
    results = {one.name: one for one in response.results}
    values = {
        "throttle_time": 0,
        "error_code": response.error_code,
        "error_message": None,
        "results": [_result(one, results.get(one["feature"]), response) for one in asked],
    }
    return values


def _update(one: Message) -> admin_pb2.FeatureUpdate:
    downgrade = one.get("allow_downgrade", False) or one.get("upgrade_type", _UPGRADE) != _UPGRADE
    return admin_pb2.FeatureUpdate(
        name=one["feature"], level=one["max_version_level"], allow_downgrade=downgrade
    )


def _result(
    asked: Message,
    found: admin_pb2.FeatureResult | None,
    response: admin_pb2.UpdateFeaturesResponse,
) -> Message:
    name = asked["feature"]
    if asked["max_version_level"] < 1:
        message = f"{name} cannot be removed: levels begin at 1"
        return {
            "feature": name,
            "error_code": errors_pb2.INVALID_REQUEST,
            "error_message": message,
        }
    if found is None:
        code = response.error_code or errors_pb2.UNKNOWN_SERVER_ERROR
        return {"feature": name, "error_code": code, "error_message": None}
    return {
        "feature": name,
        "error_code": found.error_code,
        "error_message": found.error_message or None,
    }
