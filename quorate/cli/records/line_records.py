"""Records from lines of text: a value, with headers and a key before it if the user says so."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import click

Headers = list[tuple[str, bytes]]

HEADERS_END = b"\t"


class LineRecord(NamedTuple):
    """A record to produce."""

    key: bytes | None
    value: bytes
    headers: Headers


@dataclass(frozen=True)
class LineFormat:
    """What is in a line. ``headers`` are those of every record, before those of its line."""

    key_separator: bytes | None = None
    with_headers: bool = False
    headers: Headers = field(default_factory=list)


class BadLine(click.ClickException):
    """A line that makes no record; says which one, and why."""


def line_records(lines: Iterable[bytes], form: LineFormat) -> Iterator[LineRecord]:
    """Yield the record of each line.

    Raises:
        BadLine: a line lacks a separator.
    """
    for number, line in enumerate(lines, 1):
        content, headers = line.removesuffix(b"\n"), form.headers
        if form.with_headers:
            named, found, content = content.partition(HEADERS_END)
            if not found:
                raise BadLine(f"line {number} has no tab after its headers: {_shown(named)}")
            headers = [*form.headers, *_line_headers(named, number)]
        if form.key_separator is None:
            yield LineRecord(None, content, headers)
            continue
        key, found, value = content.partition(form.key_separator)
        if not found:
            separator = form.key_separator.decode()
            raise BadLine(f"line {number} has no key separator {separator!r}: {_shown(content)}")
        yield LineRecord(key, value, headers)


def _line_headers(named: bytes, number: int) -> Headers:
    return [_line_header(pair, number) for pair in named.split(b",")] if named else []


def _line_header(pair: bytes, number: int) -> tuple[str, bytes]:
    name, colon, value = pair.partition(b":")
    if not colon or not name:
        raise BadLine(f"line {number}: header {_shown(pair)} must be name:value")
    try:
        return name.decode(), value
    except UnicodeDecodeError:
        raise BadLine(f"line {number}: the name of header {_shown(pair)} is no UTF-8") from None


def parse_headers(pairs: Sequence[str]) -> Headers:
    """Parse the values of ``--header NAME=VALUE``; a name may be given repeatedly.

    Raises:
        click.UsageError: one is not of that form.
    """
    headers = []
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise click.UsageError(f"--header {pair}: must be name=value")
        headers.append((name, value.encode()))
    return headers


def _shown(content: bytes) -> str:
    return repr(content[:80].decode(errors="replace"))
