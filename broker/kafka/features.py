"""UpdateFeatures (57): levels are raised or lowered by the controller, wherever it arrives (B4)."""

from typing import Final

from broker.control.changes import UPDATE_FEATURES
from broker.kafka import codec
from broker.kafka.admin_context import admin_context, ask_controller
from broker.kafka.codec import Message
from broker.kafka.requests import Buffers, RequestContext
from broker.kafka.services import KafkaServices
from quorate_proto.v1 import admin_pb2, errors_pb2

_UPGRADE: Final = 1
"""Upgrade types 2 and 3 are downgrades, safe and unsafe; nothing unsafe is done for either."""


async def update_features(
    services: KafkaServices, context: RequestContext, request: Message
) -> Buffers:
    asked = request["feature_updates"]
    response = await ask_controller(
        services,
        context,
        UPDATE_FEATURES,
        admin_pb2.UpdateFeaturesRequest(
            context=admin_context(context, "UpdateFeatures", request["timeout"]),
            updates=[_update(one) for one in asked if one["max_version_level"] > 0],
            validate_only=request.get("validate_only", False),
        ),
    )
    results = {one.name: one for one in response.results}
    values = {
        "throttle_time": 0,
        "error_code": response.error_code,
        "error_message": None,
        "results": [_result(one, results.get(one["feature"]), response) for one in asked],
    }
    return [codec.encode_response("update_features", context.version, values)]


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
