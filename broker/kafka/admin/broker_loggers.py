"""The levels of this broker's loggers, as the configuration resource BROKER_LOGGER (KIP-412).

Each broker describes and changes its own, while it runs. Nothing of it is stored: after a restart
the levels are those of the start. A logger without a level of its own has that of the nearest one
above it.
"""

import logging
from collections.abc import Iterable, Iterator
from typing import Final

from quorate.broker.common.errors import KafkaError
from quorate.broker.kafka.connection.requests import RequestContext
from quorate.broker.kafka.services import KafkaServices
from quorate.broker.kafka.wire.codec import Message
from quorate.common.acl_types import AclOperation
from quorate_proto.v1 import admin_pb2, errors_pb2

RESOURCE_TYPE: Final = 8
"""Kafka's number of this type of resource."""

ROOT: Final = "root"

_SOURCE: Final = 6
"""Kafka's ConfigSource of the level of a logger."""

_SET, _DELETE = 0, 1
_TRACE: Final = 5

_LEVELS: Final = {
    "TRACE": _TRACE,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
"""Kafka's levels and Python's. Nothing is logged below DEBUG here, so TRACE shows no more."""


def describe(
    services: KafkaServices, context: RequestContext, resource: Message
) -> admin_pb2.DescribedConfig:
    """Return the level of every logger, or of those that are asked for."""
    try:
        services.authorizer.rights_of(context).require_cluster(AclOperation.DESCRIBE_CONFIGS)
        _require_this_broker(services, resource["resource_name"])
    except KafkaError as error:
        return admin_pb2.DescribedConfig(error_code=error.code, error_message=error.message)
    wanted = frozenset(resource["configuration_keys"] or ())
    return admin_pb2.DescribedConfig(
        entries=[
            admin_pb2.ConfigEntry(name=name, value=_level_of(name), source=_SOURCE, type=2)
            for name in sorted(_names())
            if not wanted or name in wanted
        ]
    )


def alter(
    services: KafkaServices, context: RequestContext, resource: Message, *, validate_only: bool
) -> tuple[int, str]:
    """Set and remove levels, all of them or none. Return Kafka's error code and a message."""
    try:
        services.authorizer.rights_of(context).require_cluster(AclOperation.ALTER_CONFIGS)
        _require_this_broker(services, resource["resource_name"])
        levels = dict(_levels_asked(resource["configs"]))
    except KafkaError as error:
        return error.code, error.message
    if not validate_only:
        for name, level in levels.items():
            _logger(name).setLevel(level)
    return errors_pb2.NONE, ""


def _require_this_broker(services: KafkaServices, name: str) -> None:
    if name != str(services.broker_id):
        raise KafkaError(
            errors_pb2.INVALID_REQUEST,
            f"this is broker {services.broker_id}, which has the levels of its own loggers alone: "
            f"ask broker {name[:20]!r} for its own",
        )


def _levels_asked(configs: Iterable[Message]) -> Iterator[tuple[str, int]]:
    """Yield the new level of each logger; NOTSET for one that is to have none of its own."""
    known = frozenset(_names())
    for one in configs:
        name, operation, level = one["name"], one["config_operation"], one["value"]
        if name not in known:
            raise KafkaError(errors_pb2.INVALID_CONFIG, f"there is no logger {name[:200]!r}")
        if operation == _DELETE and name == ROOT:
            raise KafkaError(
                errors_pb2.INVALID_REQUEST, f"the level of {ROOT} cannot be removed: set another"
            )
        if operation not in (_SET, _DELETE):
            raise KafkaError(
                errors_pb2.INVALID_REQUEST, f"{name}: the level of a logger is no list"
            )
        if operation == _SET and level not in _LEVELS:
            raise KafkaError(
                errors_pb2.INVALID_CONFIG,
                f"{name}: {str(level)[:20]!r} is no level, but {', '.join(_LEVELS)} are",
            )
        yield name, _LEVELS[level] if operation == _SET else logging.NOTSET


def _names() -> Iterator[str]:
    """Yield every logger, and every package that has loggers."""
    yield ROOT
    yield from tuple(logging.root.manager.loggerDict)


def _logger(name: str) -> logging.Logger:
    return logging.root if name == ROOT else logging.getLogger(name)


def _level_of(name: str) -> str:
    """Return the most verbose of Kafka's levels that is logged."""
    least = _logger(name).getEffectiveLevel()
    return next((level for level, number in _LEVELS.items() if number >= least), "FATAL")
