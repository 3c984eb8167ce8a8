"""Changes of the metadata log as rows for people, the newest first. Pure."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from quorate_proto.v1.admin_pb2 import MetadataAuthor, MetadataChanges

VALUE_MAX: Final = 600
"""The most characters of a value that a row shows."""


class ChangeRow(NamedTuple):
    """One changed path."""

    offset: int
    timestamp_ms: int
    key: str
    kind: str
    old: str
    new: str
    writer: str
    principal: str
    client_host: str
    api: str


def change_rows(frame: MetadataChanges) -> Iterator[ChangeRow]:
    """Yield the rows of a frame, in the order of the log."""
    for row, offset in enumerate(frame.offsets):
        author = frame.authors[frame.author_of[row]]
        yield ChangeRow(
            offset,
            author.timestamp_ms,
            frame.keys[row],
            frame.record_types[frame.record_type_of[row]],
            frame.olds[row],
            frame.news[row],
            _writer(author),
            author.principal,
            author.client_host,
            author.api,
        )


def _writer(author: MetadataAuthor) -> str:
    if author.HasField("controller_epoch"):
        return f"{author.writer}, controller epoch {author.controller_epoch}"
    return author.writer


def at_or_below(rows: Iterable[ChangeRow], path: str) -> Iterator[ChangeRow]:
    """Yield the rows of a path and of what lies below it."""
    prefix = "/" + path.strip("/")
    below = prefix.rstrip("/") + "/"
    return (row for row in rows if row.key == prefix or row.key.startswith(below))


class FieldChange(NamedTuple):
    """One field of a value, before and after. What is absent is empty."""

    name: str
    old: str
    new: str


_VERSIONS: Final = frozenset({"version", "controller_id", "controller_epoch"})
"""Fields that every change of a partition sets, and that are seldom what people look for."""


def field_changes(row: ChangeRow) -> list[FieldChange]:
    """Return what differs between the values of a row.

    Of two objects that is field by field. Otherwise it is the whole value, without a name.
    """
    old, new = _object(row.old), _object(row.new)
    if old is None or new is None:
        return [FieldChange("", _cut(row.old), _cut(row.new))]
    names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    telling = [name for name in names if name not in _VERSIONS] or names
    return [FieldChange(name, _shown(old, name), _shown(new, name)) for name in telling]


def _object(value: str) -> dict[str, Any] | None:
    if not value:
        return None
    try:
        decoded = json.loads(value)
    except ValueError:
        return None
    return decoded if isinstance(decoded, dict) else None


def _shown(value: Mapping[str, Any], name: str) -> str:
    return _cut(json.dumps(value[name], ensure_ascii=False)) if name in value else ""


def _cut(value: str) -> str:
    return value if len(value) <= VALUE_MAX else f"{value[:VALUE_MAX]}…"
