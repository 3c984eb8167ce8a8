"""Tells what an answer says of each resource, in one line: ``t/0 TOPIC_AUTHORIZATION_FAILED``."""

import dataclasses
from collections.abc import Iterator
from enum import IntEnum
from typing import Any, Final

from quorate.broker.common.errors import error_name

CLOSED: Final = "the connection is closed"
_NAMES: Final = (
    "topic",
    "topic_name",
    "name",
    "group_id",
    "transactional_id",
    "resource_name",
    "user",
    "feature",
    "key",
    "principal_name",
)
_NUMBERS: Final = ("partition_index", "partition", "partition_id", "index")
_ERROR_CODE: Final = "error_code"
_SAID_WITHOUT_CONTENTS: Final = frozenset(
    {"api_keys", "brokers", "config_resources", "configs", "mechanisms", "nodes"}
)
"""The fields of which only the name is told: their contents differ between the two kinds of broker,
and are nobody's secret here."""


def outcome_of(response: Any) -> str:  # noqa: ANN401 - any of kio's responses
    """Return the error code of each resource in the response, and what else is told by name."""
    items = sorted(set(_items(response, "")))
    whole = [item for item in items if " " not in item and item.isupper()]
    if len(items) > len(whole) and whole == ["NONE"]:
        items.remove("NONE")
    return ", ".join(items) or "nothing"


def _items(message: Any, path: str) -> Iterator[str]:  # noqa: ANN401 - any part of any response
    parent, path = path, _path_of(message, path)
    said = False
    for field in dataclasses.fields(message):
        value = getattr(message, field.name)
        if field.name.endswith(_ERROR_CODE):
            if field.name == _ERROR_CODE or _code(value):
                said = True
                kind = field.name.removesuffix(_ERROR_CODE).strip("_")
                yield f"{path} {kind} {_code_name(value)}".replace("  ", " ").strip()
        elif isinstance(value, tuple) and value and dataclasses.is_dataclass(value[0]):
            said = True
            if field.name in _SAID_WITHOUT_CONTENTS:
                yield f"{path}+{field.name}"
            else:
                for item in value:
                    yield from _items(item, path)
    if path != parent and not said:
        yield path


def _path_of(message: Any, path: str) -> str:  # noqa: ANN401 - as above
    parts = [path] if path else []
    for fields in (_NAMES, _NUMBERS):
        values = (getattr(message, name, None) for name in fields)
        found = next((value for value in values if value not in (None, "")), None)
        if found is not None:
            parts.append(str(found))
    return "/".join(parts)


def _code(value: Any) -> int:  # noqa: ANN401 - a number, or kio's enumeration of them
    return int(value.value if isinstance(value, IntEnum) else value)


def _code_name(value: Any) -> str:  # noqa: ANN401 - as above
    return value.name.upper() if isinstance(value, IntEnum) else error_name(value)
