"""What an option is: a name, a kind, a default, where it has an effect, a line of documentation.

Every option of the source is declared once in `quorate.spark.options.table`; `GivenOptions` reads
what a user gave by it, and a test holds docs/SPARK.md to it.
"""

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from quorate.client.bootstrap import parse_servers
from quorate.durations import parse_duration_ms
from quorate.spark.errors import OptionError

T_co = TypeVar("T_co", covariant=True)


class Scope(enum.Enum):
    """What a query does; the values are what docs and messages call it."""

    BATCH = "batch"
    STREAM = "stream"
    WRITE = "write"
    METADATA = "metadata"

    @property
    def query(self) -> str:
        """In a sentence: "… has no effect on a …"."""
        return _QUERIES[self]


_QUERIES = {
    Scope.BATCH: "batch query",
    Scope.STREAM: "streaming query",
    Scope.WRITE: "write",
    Scope.METADATA: "query of the metadata log",
}
READ = frozenset({Scope.BATCH, Scope.STREAM})
WRITE = frozenset({Scope.WRITE})
EVERYWHERE = frozenset(Scope)


@dataclass(frozen=True, slots=True)
class Kind(Generic[T_co]):
    """A type of values as they are written."""

    says: str
    """What a value may be, as in "it must be true or false"."""
    parse: Callable[[str, str], T_co]
    """``(name of the option, text) -> value``; raises `OptionError`."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Option(Generic[T_co]):
    """One option; compared by identity."""

    name: str
    kind: Kind[T_co]
    default: T_co
    default_says: str = ""
    """The default in the documentation, where it is not the value's own text."""
    scopes: frozenset[Scope]
    """Where it has an effect; elsewhere it is ignored with a warning."""
    refused_in: frozenset[Scope] = frozenset()
    """Where ignoring it would give other rows than were asked for."""
    also: str = ""
    """Another name of it."""
    doc: str

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, self.also) if self.also else (self.name,)

    @property
    def shown_default(self) -> str:
        if self.default_says or self.default is None:
            return self.default_says
        text = str(self.default)
        return text.lower() if isinstance(self.default, bool) else text


AnyOption = Option[Any]


def kind_of(says: str, parse: Callable[[str], T_co]) -> Kind[T_co]:
    """A kind whose ``parse`` raises ValueError for a text that is none."""

    def parse_named(name: str, text: str) -> T_co:
        try:
            return parse(text.strip())
        except ValueError:
            raise OptionError(f"option {name} is {text!r}: it must be {says}") from None

    return Kind(says, parse_named)


def whole_number(at_least: int) -> Kind[int]:
    """A decimal number without a sign."""

    def parse(text: str) -> int:
        if not (text.isascii() and text.isdecimal()) or int(text) < at_least:
            raise ValueError
        return int(text)

    return kind_of(f"a whole number, at least {at_least}", parse)


def one_of(*words: str) -> Kind[str]:
    """One of some words, in any case."""

    def parse(text: str) -> str:
        if text.lower() not in words:
            raise ValueError
        return text.lower()

    return kind_of(f"one of {', '.join(words)}", parse)


def _parse_boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError
    return text.lower() == "true"


def _parse_text(text: str) -> str:
    if not text:
        raise ValueError
    return text


def _parse_names(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise ValueError
    return names


def _parse_servers(text: str) -> str:
    parse_servers(text)
    return text


SERVERS = kind_of("host:port, or several with commas between", _parse_servers)
BOOLEAN = kind_of("true or false", _parse_boolean)
TEXT = kind_of("text", _parse_text)
NAMES = kind_of("names, with commas between", _parse_names)
DURATION = kind_of("a duration such as 500ms, 30s, 10m, 2h or 1d", parse_duration_ms)
