"""The API UpdateFeatures (57): the controller raises or lowers levels (B4).

Up to version 1 each feature has a result of its own. From version 2 on nothing is changed if one
feature is refused, and the error of the whole request says why (KIP-1022).
"""

from typing import Final

from quorate.broker.changes.table import UPDATE_FEATURES
from quorate.broker.common.errors import KafkaError
from quorate.broker.kafka.admin import kafka_features
from quorate.broker.kafka.connection.requests import RequestContext
from quorate.broker.kafka.services import KafkaServices
from quorate.broker.kafka.wire.codec import Message
from quorate_proto.v1 import admin_pb2, errors_pb2

_UPGRADE: Final = 1
"""The upgrade type "upgrade". Types 2 and 3 are safe and unsafe downgrades; both are done only if
safe."""

_FIRST_VERSION_OF_ALL_OR_NOTHING: Final = 2

_NONE: Final = (errors_pb2.NONE, "")

Outcome = tuple[int, str]
"""The error code and message of one feature."""


async def update_features(
    services: KafkaServices, context: RequestContext, request: Message
) -> Message:
    update = _Update(services, context, request)
    validate_only: bool = request.get("validate_only", False)
    if context.version < _FIRST_VERSION_OF_ALL_OR_NOTHING:
        error_code = await update.ask(validate_only=validate_only)
        return _response(error_code, None, update.outcomes)
    error_code = await update.ask(validate_only=True)
    if not (error_code or update.refusals or validate_only):
        error_code = await update.ask(validate_only=False)
    if error_code or not update.refusals:
        return _response(error_code, None, {})
    code = next(code for code, _ in update.outcomes.values() if code)
    return _response(code, "; ".join([*update.refusals, "no feature was changed"]), {})


class _Update:
    """One request, and the outcome of each feature that it names."""

    def __init__(self, services: KafkaServices, context: RequestContext, request: Message) -> None:
        self._services = services
        self._context = context
        self._timeout_ms: int = request["timeout"]
        self.outcomes: dict[str, Outcome] = {}
        self._updates: dict[str, admin_pb2.FeatureUpdate] = {}
        """What the controller is asked for, by the name in the request."""
        for one in request["feature_updates"]:
            self._take(one)

    @property
    def refusals(self) -> list[str]:
        return [message for code, message in self.outcomes.values() if code]

    async def ask(self, *, validate_only: bool) -> int:
        """Ask the controller, and return the error code of the whole request."""
        response = await self._services.forwarder.forward(
            UPDATE_FEATURES,
            admin_pb2.UpdateFeaturesRequest(
                context=self._context.for_controller("UpdateFeatures", self._timeout_ms),
                updates=self._updates.values(),
                validate_only=validate_only,
            ),
            api_version=self._context.version,
        )
        results = {one.name: (one.error_code, one.error_message) for one in response.results}
        missing = (response.error_code or errors_pb2.UNKNOWN_SERVER_ERROR, "")
        for name, update in self._updates.items():
            self.outcomes[name] = results.get(update.name, missing)
        return response.error_code

    def _take(self, one: Message) -> None:
        name, level = one["feature"], one["max_version_level"]
        self.outcomes[name] = _NONE
        if kafka_features.is_as_asked(name, level):
            return
        lowers = one.get("allow_downgrade", False) or one.get("upgrade_type", _UPGRADE) != _UPGRADE
        try:
            own_name, own_level = kafka_features.own_level(name, level)
        except KafkaError as error:
            self.outcomes[name] = (error.code, error.message)
        else:
            self._updates[name] = admin_pb2.FeatureUpdate(
                name=own_name, level=own_level, allow_downgrade=lowers
            )


def _response(error_code: int, message: str | None, outcomes: dict[str, Outcome]) -> Message:
    return {
        "throttle_time": 0,
        "error_code": error_code,
        "error_message": message,
        "results": [
            {"feature": name, "error_code": code, "error_message": text or None}
            for name, (code, text) in outcomes.items()
        ],
    }
