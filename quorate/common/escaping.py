"""Escapes text that people read and that somebody else may have chosen.

Names, client ids, descriptions and error messages come from clients. Written to a terminal or a
log as they are, they could move the cursor, colour lines, turn the direction of writing, or begin a
line that nobody wrote. So every control character is shown as its escape: C0, DEL and C1, marks
that change the direction of writing or are not seen, line and paragraph separators, and halves of
surrogate pairs, which no stream can encode.

Few places call this: the printer of the command line, the formatter of logs, the exposition of
metrics. What goes through them cannot be forgotten.
"""

import json
import logging
import re
from typing import Any, Final

_UNSAFE: Final = re.compile(
    "[\\x00-\\x1f\\x7f-\\x9f\\xad\\u061c\\u180e\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u2069\\ufeff"
    "\\ud800-\\udfff\\ufff9-\\ufffb]"
)
_NAMED: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def escaped(text: str) -> str:
    """Return the text on one line, without anything that a terminal obeys."""
    if text.isascii() and text.isprintable():
        return text
    return _UNSAFE.sub(_escape, text)


def escaped_lines(text: str) -> str:
    """Return the text without anything that a terminal obeys, but for line ends and tabs.

    It is for text that is made of lines on purpose, and whose parts went through ``escaped``.
    """
    return _UNSAFE.sub(_escape_but_layout, text)


def _escape(found: re.Match[str]) -> str:
    character = found[0]
    named = _NAMED.get(character)
    if named is not None:
        return named
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def _escape_but_layout(found: re.Match[str]) -> str:
    return found[0] if found[0] in "\n\t" else _escape(found)


def json_text(value: Any, indent: int | None = None, *, ensure_ascii: bool = True) -> str:  # noqa: ANN401 - whatever JSON holds
    """Return the value as JSON. What JSON leaves as it is and a terminal obeys is escaped too."""
    return _UNSAFE.sub(_escape_json, json.dumps(value, indent=indent, ensure_ascii=ensure_ascii))


def _escape_json(found: re.Match[str]) -> str:
    return "\n" if found[0] == "\n" else f"\\u{ord(found[0]):04x}"


class EscapingFormatter(logging.Formatter):
    """Formats a record of the log on one line. Only a traceback has lines of its own."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return escaped(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: ANN401 - as logging has it
        return escaped_lines(super().formatException(ei))


def log_to_stderr(level: str) -> None:
    """Send the log of this process to its standard error, escaped."""
    handler = logging.StreamHandler()
    handler.setFormatter(EscapingFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=level, handlers=[handler])
