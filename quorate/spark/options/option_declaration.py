"""Declarations of options: the name, the kind of value, the default, the scopes and a help text.

Every option of the source is declared once, in `quorate.spark.options.option_table`. `GivenOptions`
reads what a user gave by these declarations, and a test compares docs/SPARK.md with them.
"""

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from urllib.parse import urlsplit

from quorate.client.bootstrap import parse_servers
from quorate.common.durations import parse_duration_ms
from quorate.spark.errors import OptionError

T_co = TypeVar("T_co", covariant=True)


class Scope(enum.Enum):
    """A kind of query. The values are its names in the documentation and in messages."""

    BATCH = "batch"
    STREAM = "stream"
    WRITE = "write"
    METADATA = "metadata"

    @property
    def query(self) -> str:
        """The name in a sentence such as "… has no effect on a streaming query"."""
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
class OptionKind(Generic[T_co]):
    """A kind of values, and how they are written."""

    says: str
    """The allowed values in words, for a sentence such as "it must be true or false"."""
    parse: Callable[[str, str], T_co]
    """Parses ``(name of the option, text)``, and raises `OptionError` for other texts."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Option(Generic[T_co]):
    """One option. Options are compared by identity."""

    name: str
    kind: OptionKind[T_co]
    default: T_co
    default_says: str = ""
    """The text for the default in the documentation, if it is not the text of the value."""
    scopes: frozenset[Scope]
    """The queries on which the option has an effect. Others ignore it with a warning."""
    refused_in: frozenset[Scope] = frozenset()
    """The queries that refuse the option, because without it they would return wrong rows."""
    also: str = ""
    """A second name of the option."""
    doc: str
    """The help text in the documentation."""

    @property
    def names(self) -> tuple[str, ...]:
        """All names of the option."""
        return (self.name, self.also) if self.also else (self.name,)


AnyOption = Option[Any]


def option_kind(says: str, parse: Callable[[str], T_co]) -> OptionKind[T_co]:
    """Return a kind of value. ``parse`` raises ValueError for a text that is not allowed."""

    def parse_named(name: str, text: str) -> T_co:
        try:
            return parse(text.strip())
        except ValueError:
            raise OptionError(f"option {name} is {text!r}: it must be {says}") from None

    return OptionKind(says, parse_named)


def whole_number(at_least: int) -> OptionKind[int]:
    """Return the kind of decimal numbers without a sign."""

    def parse(text: str) -> int:
        if not (text.isascii() and text.isdecimal()) or int(text) < at_least:
            raise ValueError
        return int(text)

    return option_kind(f"a whole number, at least {at_least}", parse)


def one_of(*words: str) -> OptionKind[str]:
    """Return the kind of a choice between words, in upper or lower case."""

    def parse(text: str) -> str:
        if text.lower() not in words:
            raise ValueError
        return text.lower()

    return option_kind(f"one of {', '.join(words)}", parse)


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


def _parse_urls(text: str) -> tuple[str, ...]:
    urls = tuple(url.strip() for url in text.split(",") if url.strip())
    if not urls or not all(_is_url(url) for url in urls):
        raise ValueError
    return urls


def _is_url(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc


def _parse_servers(text: str) -> str:
    parse_servers(text)
    return text


SERVERS = option_kind("host:port, or several with commas between", _parse_servers)
BOOLEAN = option_kind("true or false", _parse_boolean)
TEXT = option_kind("text", _parse_text)
URLS = option_kind("http(s)://host:port, or several with commas between", _parse_urls)
NAMES = option_kind("names, with commas between", _parse_names)
DURATION = option_kind("a duration such as 500ms, 30s, 10m, 2h or 1d", parse_duration_ms)
