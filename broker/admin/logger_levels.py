"""The levels of this broker's loggers over the Admin service, as entities ``broker-logger``.

Each broker answers for itself: the controller has no part in it, and nothing is stored.
"""

from quorate.broker.common.errors import KafkaError
from quorate.broker.kafka.admin.broker_loggers import (
    BROKER_LOGGER,
    LevelChange,
    change_levels,
    described_levels,
)
from quorate.broker.security.authorizer import Rights
from quorate_proto.v1 import admin_pb2


def described(
    request: admin_pb2.DescribeConfigsRequest, rights: Rights, broker_id: int
) -> admin_pb2.DescribeConfigsResponse | None:
    """Return the answer if the request is for loggers, else None."""
    if not _are_loggers([one.entity_type for one in request.entities]):
        return None
    return admin_pb2.DescribeConfigsResponse(
        results=[
            described_levels(rights, broker_id, one.entity_name, one.keys)
            for one in request.entities
        ]
    )


def altered(
    request: admin_pb2.IncrementalAlterConfigsRequest, rights: Rights, broker_id: int
) -> admin_pb2.IncrementalAlterConfigsResponse | None:
    """Change the levels if the request is for loggers, and return the answer, else None."""
    if not _are_loggers([one.entity_type for one in request.changes]):
        return None
    return admin_pb2.IncrementalAlterConfigsResponse(
        results=[
            _changed(one, rights, broker_id, validate_only=request.validate_only)
            for one in request.changes
        ]
    )


def _are_loggers(entity_types: list[str]) -> bool:
    return bool(entity_types) and all(one == BROKER_LOGGER for one in entity_types)


def _changed(
    change: admin_pb2.ConfigChange, rights: Rights, broker_id: int, *, validate_only: bool
) -> admin_pb2.ConfigResult:
    result = admin_pb2.ConfigResult(entity_type=change.entity_type, entity_name=change.entity_name)
    levels = [LevelChange(name, level) for name, level in change.values.items()]
    levels += [LevelChange(name, None) for name in change.removed]
    try:
        change_levels(rights, broker_id, change.entity_name, levels, validate_only=validate_only)
    except KafkaError as error:
        result.error_code, result.error_message = error.code, error.message
    return result
