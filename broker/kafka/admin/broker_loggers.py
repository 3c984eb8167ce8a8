"""The levels of this broker's loggers, as the configuration resource BROKER_LOGGER (KIP-412).

Each broker describes and changes its own, while it runs. Nothing of it is stored: after a restart
the levels are those of the start. A logger without a level of its own has that of the nearest one
above it.
"""

import logging
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from quorate.broker.common.errors import KafkaError
from quorate.broker.kafka.connection.requests import RequestContext
from quorate.broker.kafka.services import KafkaServices
from quorate.broker.kafka.wire.codec import Message
from quorate.broker.security.authorizer import Rights
from quorate.common.acl_types import AclOperation
from quorate_proto.v1 import admin_pb2, errors_pb2

log = logging.getLogger(__name__)

RESOURCE_TYPE: Final = 8
"""Kafka's number of this type of resource."""

BROKER_LOGGER: Final = "broker-logger"
"""The type of these entities in the Admin service."""

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


class LevelChange(NamedTuple):
    """The new level of one logger; None removes the level that it has."""

    name: str
    level: str | None


def described_levels(
    rights: Rights, broker_id: int, name: str, loggers: Iterable[str]
) -> admin_pb2.DescribedConfig:
    """Return the level of every logger, or of ``loggers`` if there are any. ``name`` is the broker
    whose loggers are meant."""
    described = admin_pb2.DescribedConfig(entity_type=BROKER_LOGGER, entity_name=name)
    try:
        rights.require_cluster(AclOperation.DESCRIBE_CONFIGS)
        _require_this_broker(broker_id, name)
    except KafkaError as error:
        described.error_code, described.error_message = error.code, error.message
        return described
    wanted = frozenset(loggers)
    described.entries.extend(
        admin_pb2.ConfigEntry(name=logger, value=_level_of(logger), source=_SOURCE, type=2)
        for logger in sorted(_names())
        if not wanted or logger in wanted
    )
    return described


def change_levels(
    rights: Rights,
    broker_id: int,
    name: str,
    changes: Iterable[LevelChange],
    *,
    validate_only: bool,
) -> None:
    """Set and remove levels, all of them or none.

    Raises:
        KafkaError: the client may not, this is not the broker ``name``, or a logger or a level does
            not exist.
    """
    rights.require_cluster(AclOperation.ALTER_CONFIGS)
    _require_this_broker(broker_id, name)
    levels = dict(_levels_asked(changes))
    if validate_only:
        return
    for logger, level in levels.items():
        _logger(logger).setLevel(level)
        log.info("the level of logger %s is now %s", logger, _level_of(logger))


def describe(
    services: KafkaServices, context: RequestContext, resource: Message
) -> admin_pb2.DescribedConfig:
    """Return the levels that a Kafka client asks for."""
    return described_levels(
        services.authorizer.rights_of(context),
        services.broker_id,
        resource["resource_name"],
        resource["configuration_keys"] or (),
    )


def alter(
    services: KafkaServices, context: RequestContext, resource: Message, *, validate_only: bool
) -> tuple[int, str]:
    """Change levels for a Kafka client. Return Kafka's error code and a message."""
    try:
        change_levels(
            services.authorizer.rights_of(context),
            services.broker_id,
            resource["resource_name"],
            list(_changes_of(resource["configs"])),
            validate_only=validate_only,
        )
    except KafkaError as error:
        return error.code, error.message
    return errors_pb2.NONE, ""


def _changes_of(configs: Iterable[Message]) -> Iterator[LevelChange]:
    for one in configs:
        name, operation = one["name"], one["config_operation"]
        if operation not in (_SET, _DELETE):
            raise KafkaError(
                errors_pb2.INVALID_REQUEST, f"{name[:200]}: the level of a logger is no list"
            )
        yield LevelChange(name, str(one["value"]) if operation == _SET else None)


def _require_this_broker(broker_id: int, name: str) -> None:
    if name != str(broker_id):
        raise KafkaError(
            errors_pb2.INVALID_REQUEST,
            f"this is broker {broker_id}, which has the levels of its own loggers alone: "
            f"ask broker {name[:20]!r} for its own",
        )


def _levels_asked(changes: Iterable[LevelChange]) -> Iterator[tuple[str, int]]:
    """Yield the new level of each logger; NOTSET for one that is to have none of its own."""
    known = frozenset(_names())
    for name, level in changes:
        if name not in known:
            raise KafkaError(errors_pb2.INVALID_CONFIG, f"there is no logger {name[:200]!r}")
        if level is None and name == ROOT:
            raise KafkaError(
                errors_pb2.INVALID_REQUEST, f"the level of {ROOT} cannot be removed: set another"
            )
        if level is not None and level not in _LEVELS:
            raise KafkaError(
                errors_pb2.INVALID_CONFIG,
                f"{name}: {level[:20]!r} is no level, but {', '.join(_LEVELS)} are",
            )
        yield name, logging.NOTSET if level is None else _LEVELS[level]


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
