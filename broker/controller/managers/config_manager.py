"""Decides changes of configuration: checks the keys, and makes one operation for each entity
(F3)."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from quorate.broker.common.errors import KafkaError
from quorate.broker.config.client_metrics_keys import CLIENT_METRICS, CLIENT_METRICS_SPEC
from quorate.broker.config.dynamic_config import EVERY_BROKER, dynamic_key
from quorate.broker.config.group_keys import GROUP, GROUP_SPEC, check_group
from quorate.broker.config.topic_keys import TOPIC_SPEC
from quorate.broker.controller.managers.decisions import ControllerTenure, ItemDecision
from quorate.common.configuration import ConfigError, ConfigKey, Values, as_text, list_items
from quorate.metadata_log.image import Image
from quorate.metadata_log.records import ConfigSet
from quorate_proto.v1 import admin_pb2, errors_pb2

NewValues = Mapping[str, str | None]
"""The new text of each key; None means that the key is no longer set."""

KeyOf = Callable[[str], ConfigKey[Any]]
"""Returns the key of a name, for one entity. It raises ConfigError if the entity has no such
key."""

_BROKER_ID: Final = re.compile(r"0|[1-9][0-9]{0,9}")

TYPES: Final = ("topic", "broker", CLIENT_METRICS, GROUP)


ConfigDecision: TypeAlias = ItemDecision[admin_pb2.ConfigResult]


class _Entity(Protocol):
    entity_type: str
    entity_name: str


E = TypeVar("E", bound=_Entity)


def alter(
    image: Image,
    changes: Sequence[admin_pb2.ConfigChange],
    *,
    tenure: ControllerTenure,
    config: Values,
) -> list[ConfigDecision]:
    """Change some keys of each entity. A refused entity never stops the others.

    ``config`` is that of this broker, whose limits hold for groups.
    """
    return list(_decided(image, changes, tenure, config, _changed))


def replace(
    image: Image,
    replacements: Sequence[admin_pb2.ConfigReplacement],
    *,
    tenure: ControllerTenure,
    config: Values,
) -> list[ConfigDecision]:
    """Set the named keys of each entity, and unset all others; ``config`` as for ``alter``."""
    return list(_decided(image, replacements, tenure, config, _replaced))


def _decided(
    image: Image,
    entities: Sequence[E],
    tenure: ControllerTenure,
    config: Values,
    new_values: Callable[[E, KeyOf, Mapping[str, str]], NewValues],
) -> Iterator[ConfigDecision]:
    times = Counter((one.entity_type, one.entity_name) for one in entities)
    for entity in entities:
        kind, name = entity.entity_type, entity.entity_name
        result = admin_pb2.ConfigResult(entity_type=kind, entity_name=name)
        known = image.config(kind, name)
        try:
            if times[kind, name] > 1:
                raise KafkaError(
                    errors_pb2.INVALID_REQUEST,
                    f"{kind} {name!r} is named more than once in the request",
                )
            key_of = keys_of(image, kind, name)
            values = new_values(entity, key_of, known)
            checked = {key: _checked(key_of, key, value) for key, value in values.items()}
            if kind == GROUP:
                after = {**known, **checked}
                check_group({key: value for key, value in after.items() if value}, config)
        except ConfigError as error:
            result.error_code, result.error_message = errors_pb2.INVALID_CONFIG, str(error)
            yield ItemDecision(result)
            continue
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
            yield ItemDecision(result)
            continue
        records = [
            ConfigSet(entity_type=kind, entity_name=name, key=key, value=value)
            for key, value in sorted(checked.items())
            if known.get(key) != value
        ]
        yield ItemDecision(result, tenure.operation(*records) if records else None)


def _checked(key_of: KeyOf, name: str, value: str | None) -> str | None:
    return None if value is None else as_text(key_of(name).parse(value))


def keys_of(image: Image, entity_type: str, name: str) -> KeyOf:
    """Return the function that looks up the keys that an entity understands.

    Raises:
        KafkaError: there is no such entity.
    """
    match entity_type:
        case "topic":
            if name not in image.topics:
                raise KafkaError(
                    errors_pb2.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}"
                )
            return TOPIC_SPEC.key
        case "broker":
            if name != EVERY_BROKER and not _BROKER_ID.fullmatch(name):
                raise KafkaError(errors_pb2.INVALID_REQUEST, f"{name[:50]!r} is no broker id")
            return lambda key: dynamic_key(key, of_every_broker=name == EVERY_BROKER)
        case "client-metrics":
            if not name:
                raise KafkaError(
                    errors_pb2.INVALID_REQUEST, "a subscription to client metrics needs a name"
                )
            return CLIENT_METRICS_SPEC.key
        case "group":
            if not name:
                raise KafkaError(errors_pb2.INVALID_REQUEST, "the configured group needs a name")
            return GROUP_SPEC.key
    raise KafkaError(
        errors_pb2.INVALID_REQUEST,
        f"{entity_type!r} has no configuration here: {', '.join(TYPES)} have",
    )


def _changed(change: admin_pb2.ConfigChange, key_of: KeyOf, known: Mapping[str, str]) -> NewValues:
    _check_named_once(change.values, change.removed, change.appended, change.subtracted)
    values: dict[str, str | None] = dict(change.values)
    # A key that is not set needs no removal, and one that there is none of is not set either: as in
    # Kafka, whose tools remove the keys that they may have set, all in one request.
    values |= dict.fromkeys(name for name in change.removed if name in known)
    for name, text in change.appended.items():
        before = _items(key_of(name), known, "appended to")
        values[name] = ",".join(dict.fromkeys([*before, *list_items(text)]))
    for name, text in change.subtracted.items():
        before, gone = _items(key_of(name), known, "subtracted from"), list_items(text)
        values[name] = ",".join(item for item in before if item not in gone)
    return values


def _replaced(
    replacement: admin_pb2.ConfigReplacement, _key_of: KeyOf, known: Mapping[str, str]
) -> NewValues:
    return dict.fromkeys(known) | dict(replacement.values)


def _items(key: ConfigKey[Any], known: Mapping[str, str], what: str) -> list[str]:
    """Return the items of a list that is set, or else the items of its default."""
    if not key.is_list:
        raise ConfigError(f"{key.name} is no list: nothing can be {what} it; set it")
    return list_items(known.get(key.name, str(key.default or "")))


def _check_named_once(*names: Iterable[str]) -> None:
    times = Counter(name for some in names for name in some)
    twice = sorted(name for name, count in times.items() if count > 1)
    if twice:
        raise KafkaError(errors_pb2.INVALID_REQUEST, f"named more than once: {', '.join(twice)}")
