"""Changes of configuration: keys checked, then one operation per entity (F3)."""

from collections.abc import Sequence
from typing import NamedTuple

from broker.controller.managers.office import Office
from broker.dynamic_config import DYNAMIC_BROKER_SPEC, EVERY_BROKER
from broker.errors import KafkaError
from broker.topic_config import TOPIC_SPEC
from metadata_log.configuration import ConfigError, ConfigSpec
from metadata_log.image import Image
from metadata_log.records import ConfigSet, Operation
from quorate_proto.v1 import admin_pb2, errors_pb2


class ConfigDecision(NamedTuple):
    """Outcome for one entity; ``operation`` None: refused, or nothing to do."""

    result: admin_pb2.ConfigResult
    operation: Operation | None = None


def alter(
    image: Image, changes: Sequence[admin_pb2.ConfigChange], *, office: Office
) -> list[ConfigDecision]:
    """One decision per entity, in order. One that is refused never stops its siblings."""
    return [_alter(image, change, office) for change in changes]


def _alter(image: Image, change: admin_pb2.ConfigChange, office: Office) -> ConfigDecision:
    result = admin_pb2.ConfigResult(entity_type=change.entity_type, entity_name=change.entity_name)
    try:
        _check(_spec(image, change), change)
    except ConfigError as error:
        result.error_code, result.error_message = errors_pb2.INVALID_CONFIG, str(error)
        return ConfigDecision(result)
    except KafkaError as error:
        result.error_code, result.error_message = error.code, error.message
        return ConfigDecision(result)
    known = image.config(change.entity_type, change.entity_name)
    values: dict[str, str | None] = dict(sorted(change.values.items()))
    values.update((key, None) for key in change.removed if key in known)
    records = [
        ConfigSet(
            entity_type=change.entity_type, entity_name=change.entity_name, key=key, value=value
        )
        for key, value in values.items()
        if known.get(key) != value
    ]
    return ConfigDecision(result, office.operation(*records) if records else None)


def _spec(image: Image, change: admin_pb2.ConfigChange) -> ConfigSpec:
    """The keys that the entity understands, if there is such an entity."""
    name = change.entity_name
    match change.entity_type:
        case "topic":
            if name not in image.topics:
                raise KafkaError(
                    errors_pb2.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}"
                )
            return TOPIC_SPEC
        case "broker":
            if name != EVERY_BROKER and not name.isdecimal():
                raise KafkaError(errors_pb2.INVALID_REQUEST, f"{name!r} is no broker id")
            return DYNAMIC_BROKER_SPEC
    raise KafkaError(
        errors_pb2.INVALID_REQUEST,
        f"entity type {change.entity_type!r} has no configuration here: topic and broker have",
    )


def _check(spec: ConfigSpec, change: admin_pb2.ConfigChange) -> None:
    for key, value in change.values.items():
        spec.key(key).parse(value)
    for key in change.removed:
        spec.key(key)
