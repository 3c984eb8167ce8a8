"""Lines to records and records to lines; where consuming starts."""

import json

import click
import pytest

from quorate.cli.records.consume_command import (
    EARLIEST,
    LATEST,
    as_json_line,
    as_line,
    start_offset,
)
from quorate.cli.records.produce_command import split_lines
from quorate.cli.topics.topics_command import parse_assignment, topic_id_text


class FakeMessage:
    """What the two formatters ask of a confluent-kafka message."""

    def __init__(self, key: bytes | None, value: bytes | None) -> None:
        self._key, self._value = key, value

    def topic(self) -> str:
        return "events"

    def partition(self) -> int:
        return 3

    def offset(self) -> int:
        return 17

    def timestamp(self) -> tuple[int, int]:
        return (1, 1_700_000_000_000)

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes | None:
        return self._value

    def headers(self) -> list[tuple[str, bytes]]:
        return [("trace", b"abc")]


def test_lines_without_separator_have_no_key() -> None:
    assert list(split_lines([b"a:b\n", b"\n", b"last"], None)) == [
        (None, b"a:b"),
        (None, b""),
        (None, b"last"),
    ]


def test_the_first_separator_splits_key_from_value() -> None:
    assert list(split_lines([b"k::v::w\n"], b"::")) == [(b"k", b"v::w")]


def test_a_line_without_separator_is_refused_by_number() -> None:
    with pytest.raises(click.ClickException, match=r"line 2 has no key separator ':': 'oops'"):
        list(split_lines([b"k:v\n", b"oops\n"], b":"))


@pytest.mark.parametrize(
    ("from_beginning", "offset", "partition", "start"),
    [
        (False, None, None, LATEST),
        (False, "latest", None, LATEST),
        (True, None, None, EARLIEST),
        (False, "earliest", 2, EARLIEST),
        (False, "100", 2, 100),
    ],
)
def test_where_consuming_starts(
    from_beginning: bool, offset: str | None, partition: int | None, start: int
) -> None:
    assert start_offset(from_beginning, offset, partition) == start


@pytest.mark.parametrize(
    ("from_beginning", "offset", "partition", "said"),
    [
        (True, "5", 0, "not both"),
        (False, "5", None, "needs --partition"),
        (False, "-5", 0, "must be a number"),
        (False, "soon", 0, "must be a number"),
    ],
)
def test_contradicting_starts_are_usage_errors(
    from_beginning: bool, offset: str, partition: int | None, said: str
) -> None:
    with pytest.raises(click.UsageError, match=said):
        start_offset(from_beginning, offset, partition)


def test_records_are_printed_as_lines_or_objects() -> None:
    message = FakeMessage(b"k", b"v\xff")
    assert as_line(message, None) == b"v\xff"  # type: ignore[arg-type]
    assert as_line(message, b" -> ") == b"k -> v\xff"  # type: ignore[arg-type]
    assert as_line(FakeMessage(None, None), b":") == b":"  # type: ignore[arg-type]
    assert json.loads(as_json_line(message)) == {  # type: ignore[arg-type]
        "topic": "events",
        "partition": 3,
        "offset": 17,
        "timestamp": 1_700_000_000_000,
        "key": "k",
        "value": "v\ufffd",
        "headers": [["trace", "abc"]],
    }


def test_assignment_by_hand() -> None:
    assert parse_assignment("1:2:3,2:3:1") == [[1, 2, 3], [2, 3, 1]]
    with pytest.raises(click.UsageError, match="1;2"):
        parse_assignment("1;2")


def test_topic_ids_are_printed_as_kafka_prints_them() -> None:
    assert topic_id_text(bytes(16)) == "AAAAAAAAAAAAAAAAAAAAAA"
