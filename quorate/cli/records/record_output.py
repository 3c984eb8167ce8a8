"""Formats records for ``quorate consume``: as lines of text, hex or base64, or as JSON.

Nothing that a record holds is lost or replaced: lines hold the bytes themselves or an encoding of
them, and JSON has base64 where bytes are no UTF-8.
"""

import base64
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from quorate.common.escaping import json_text

if TYPE_CHECKING:
    from confluent_kafka import Message

Line = Callable[["Message"], bytes]
"""Formats one record as a line, without its end."""

RAW: Final = "raw"
JSON: Final = "json"
ENCODINGS: Final[Mapping[str, Callable[[bytes], bytes]]] = {
    RAW: lambda data: data,
    "hex": lambda data: data.hex().encode(),
    "base64": base64.b64encode,
}
OUTPUTS: Final = (*ENCODINGS, JSON)


def line_format(output: str, key_separator: bytes | None, *, with_headers: bool) -> Line:
    """Return the function that formats records: one of ``OUTPUTS``."""
    if output == JSON:
        return as_json_line
    encode = ENCODINGS[output]

    def as_line(message: "Message") -> bytes:
        parts = []
        if with_headers:
            parts += [_headers_text(message, encode), b"\t"]
        if key_separator is not None:
            parts += [encode(message.key() or b""), key_separator]
        return b"".join([*parts, encode(message.value() or b"")])

    return as_line


def as_json_line(message: "Message") -> bytes:
    """Format the record as one JSON object.

    ``key`` and ``value`` are text or null. Where the bytes are no UTF-8, ``key_base64`` or
    ``value_base64`` takes the place of the field. Headers are pairs of name and text, and of name
    and ``{"base64": …}`` where the bytes are no UTF-8.
    """
    timestamp: tuple[int, int] = message.timestamp()
    document: dict[str, Any] = {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": timestamp[1] if timestamp[0] else None,
        **_field("key", message.key()),
        **_field("value", message.value()),
    }
    if headers := message.headers():
        document["headers"] = [[name, _header_value(value)] for name, value in _pairs(headers)]
    return json_text(document, ensure_ascii=False).encode()


def _field(name: str, data: bytes | str | None) -> dict[str, str | None]:
    text = _text(data)
    if text is None and isinstance(data, bytes):
        return {f"{name}_base64": base64.b64encode(data).decode()}
    return {name: text}


def _header_value(data: bytes | None) -> Any:  # noqa: ANN401 - JSON
    text = _text(data)
    if text is None and data is not None:
        return {"base64": base64.b64encode(data).decode()}
    return text


def _text(data: bytes | str | None) -> str | None:
    """Return the text; None for null, and for bytes that are no UTF-8."""
    if not isinstance(data, bytes):
        return data
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _headers_text(message: "Message", encode: Callable[[bytes], bytes]) -> bytes:
    """Return headers as Kafka's console consumer prints them: ``name:value,name:value``."""
    pairs = _pairs(message.headers() or [])
    return b",".join(name.encode() + b":" + encode(value or b"") for name, value in pairs)


def _pairs(headers: Any) -> list[tuple[str, bytes | None]]:  # noqa: ANN401 - three shapes in confluent-kafka
    items = headers.items() if isinstance(headers, dict) else headers
    return [
        (name, value.encode() if isinstance(value, str) else value)
        for name, value in (item[:2] for item in items)
    ]
