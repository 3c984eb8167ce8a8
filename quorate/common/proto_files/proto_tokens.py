"""The tokens of .proto files."""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from quorate.common.schema_errors import InvalidSchema

WORD: Final = "word"
NUMBER: Final = "number"
TEXT: Final = "text"
SYMBOL: Final = "symbol"
END: Final = "end"

_TOKEN: Final = re.compile(
    r"(?P<blank>\s+|//[^\n]*|/\*.*?\*/)"
    r"|(?P<word>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<number>0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)"
    r"|(?P<text>\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*')"
    r"|(?P<symbol>[][{}()<>;:,.=/+-])",
    re.DOTALL,
)
_ESCAPE: Final = re.compile(
    r"\\(?:x(?P<hex>[0-9a-fA-F]{1,2})|(?P<octal>[0-7]{1,3})"
    r"|u(?P<u4>[0-9a-fA-F]{4})|U(?P<u8>[0-9a-fA-F]{8})|(?P<one>.))",
    re.DOTALL,
)
_ONE: Final = {
    "a": b"\a",
    "b": b"\b",
    "f": b"\f",
    "n": b"\n",
    "r": b"\r",
    "t": b"\t",
    "v": b"\v",
}


class Token(NamedTuple):
    """A token: its kind, its text, and where it begins and ends in the file."""

    kind: str
    text: str
    begin: int
    end: int


class Tokens:
    """The tokens of one file, from front to back."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._tokens = _tokens(source)
        self.next = next(self._tokens)

    def take(self) -> Token:
        """Return the next token, and go on to the one after it."""
        taken = self.next
        if taken.kind != END:
            self.next = next(self._tokens)
        return taken

    def skip(self, text: str) -> bool:
        """Pass over the next token if it is that symbol or word. Return whether it is."""
        if self.next.text != text or self.next.kind in (TEXT, END):
            return False
        self.take()
        return True

    def expect(self, text: str) -> None:
        """Pass over a symbol or word that must be there."""
        if not self.skip(text):
            raise self.error(f"expected {text!r}")

    def word(self, what: str) -> str:
        """Return the next token, which must be a name."""
        if self.next.kind != WORD:
            raise self.error(f"expected {what}")
        return self.take().text

    def text_value(self) -> bytes:
        """Return the value of one or several string literals in a row."""
        if self.next.kind != TEXT:
            raise self.error("expected a string")
        value = b""
        while self.next.kind == TEXT:
            value += _unescaped(self.take().text[1:-1])
        return value

    def source(self, begin: int, end: int) -> str:
        return self._source[begin:end]

    def error(self, problem: str) -> InvalidSchema:
        """Return the error for the next token."""
        line = self._source.count("\n", 0, self.next.begin) + 1
        found = self.next.text or "the end"
        return InvalidSchema(f"line {line}: {problem}, found {found[:80]!r}")


def _tokens(source: str) -> Iterator[Token]:
    position = 1 if source.startswith("\ufeff") else 0
    while position < len(source):
        found = _TOKEN.match(source, position)
        if found is None:
            line = source.count("\n", 0, position) + 1
            raise InvalidSchema(f"line {line}: {source[position : position + 20]!r} is no token")
        position = found.end()
        if found.lastgroup != "blank":
            assert found.lastgroup is not None
            yield Token(found.lastgroup, found[0], found.start(), position)
    yield Token(END, "", len(source), len(source))


def _unescaped(literal: str) -> bytes:
    parts, position = [], 0
    for found in _ESCAPE.finditer(literal):
        parts.append(literal[position : found.start()].encode())
        position = found.end()
        code = found["u4"] or found["u8"]
        if found["hex"]:
            parts.append(bytes([int(found["hex"], 16)]))
        elif found["octal"]:
            parts.append(bytes([int(found["octal"], 8) & 0xFF]))
        elif code:
            parts.append(chr(min(int(code, 16), 0x10FFFF)).encode("utf-8", "replace"))
        else:
            parts.append(_ONE.get(found["one"], found["one"].encode()))
    return b"".join([*parts, literal[position:].encode()])


def integer(text: str) -> int | None:
    """Return the value of an integer literal, or None if it is none."""
    if re.fullmatch(r"0[xX][0-9a-fA-F]{1,16}", text):
        return int(text, 16)
    if re.fullmatch(r"0[0-7]{1,22}", text):
        return int(text, 8)
    return int(text) if re.fullmatch(r"0|[1-9]\d{0,19}", text) else None
