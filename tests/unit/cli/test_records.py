"""Lines to records and records to lines; where consuming starts."""

import json
from typing import Any

import click
import pytest

from quorate.cli.records.line_records import BadLine, LineFormat, line_records, parse_headers
from quorate.cli.records.record_output import line_format
from quorate.cli.records.start_positions import EARLIEST, LATEST, TAIL_BASE, start_offset
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

    def headers(self) -> list[tuple[str, bytes | None]]:
        return [("trace", b"abc"), ("bits", b"\xff\xfe"), ("none", None)]


def test_lines_without_separator_have_no_key() -> None:
    assert list(line_records([b"a:b\n", b"\n", b"last"], LineFormat())) == [
        (None, b"a:b", []),
        (None, b"", []),
        (None, b"last", []),
    ]


def test_the_first_separator_splits_key_from_value() -> None:
    assert list(line_records([b"k::v::w\n"], LineFormat(b"::"))) == [(b"k", b"v::w", [])]


def test_headers_come_from_the_line_and_from_the_command() -> None:
    form = LineFormat(b":", with_headers=True, headers=[("all", b"1")])
    assert list(line_records([b"a:x,b:\tk:v\n", b"\tk:w\n"], form)) == [
        (b"k", b"v", [("all", b"1"), ("a", b"x"), ("b", b"")]),
        (b"k", b"w", [("all", b"1")]),
    ]
    assert parse_headers(["a=1=2", "b="]) == [("a", b"1=2"), ("b", b"")]
    with pytest.raises(click.UsageError, match="--header nothing: must be name=value"):
        parse_headers(["nothing"])


@pytest.mark.parametrize(
    ("line", "form", "why"),
    [
        (b"oops\n", LineFormat(b":"), "line 2 has no key separator ':': 'oops'"),
        (b"oops\n", LineFormat(with_headers=True), "line 2 has no tab after its headers: 'oops'"),
        (b"a\tv", LineFormat(with_headers=True), "line 2: header 'a' must be name:value"),
        (b"\xff:a\tv", LineFormat(with_headers=True), "line 2: the name of header .* no UTF-8"),
    ],
)
def test_a_line_that_makes_no_record_is_refused_by_number(
    line: bytes, form: LineFormat, why: str
) -> None:
    with pytest.raises(BadLine, match=why):
        list(line_records([b"\tk:v\n", line], form))


@pytest.mark.parametrize(
    ("from_beginning", "offset", "partition", "start"),
    [
        (False, None, None, LATEST),
        (False, "latest", None, LATEST),
        (True, None, None, EARLIEST),
        (False, "earliest", 2, EARLIEST),
        (False, "100", 2, 100),
        (False, "-5", None, TAIL_BASE - 5),
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
        (False, "-0", 0, "must be a number"),
        (False, "soon", 0, "must be a number"),
    ],
)
def test_contradicting_starts_are_usage_errors(
    from_beginning: bool, offset: str, partition: int | None, said: str
) -> None:
    with pytest.raises(click.UsageError, match=said):
        start_offset(from_beginning, offset, partition)


def test_a_group_reads_from_its_own_offsets() -> None:
    assert start_offset(True, None, None, "billing") == EARLIEST
    for offset, partition in (("5", None), (None, 2)):
        with pytest.raises(click.UsageError, match="reset-offsets"):
            start_offset(False, offset, partition, "billing")


MESSAGE: Any = FakeMessage(b"k", b"v\xff")
NULLS: Any = FakeMessage(None, None)


@pytest.mark.parametrize(
    ("output", "separator", "with_headers", "line"),
    [
        ("raw", None, False, b"v\xff"),
        ("raw", b" -> ", False, b"k -> v\xff"),
        ("hex", None, False, b"76ff"),
        ("hex", b":", False, b"6b:76ff"),
        ("base64", None, False, b"dv8="),
        ("raw", b":", True, b"trace:abc,bits:\xff\xfe,none:\tk:v\xff"),
        ("hex", None, True, b"trace:616263,bits:fffe,none:\t76ff"),
    ],
)
def test_records_are_printed_as_lines_that_lose_nothing(
    output: str, separator: bytes | None, with_headers: bool, line: bytes
) -> None:
    assert line_format(output, separator, with_headers=with_headers)(MESSAGE) == line


def test_nulls_are_empty_in_lines() -> None:
    assert line_format("raw", b":", with_headers=False)(NULLS) == b":"


def test_json_has_base64_where_bytes_are_no_text() -> None:
    assert json.loads(line_format("json", None, with_headers=False)(MESSAGE)) == {
        "topic": "events",
        "partition": 3,
        "offset": 17,
        "timestamp": 1_700_000_000_000,
        "key": "k",
        "value_base64": "dv8=",
        "headers": [["trace", "abc"], ["bits", {"base64": "//4="}], ["none", None]],
    }
    document = json.loads(line_format("json", None, with_headers=False)(NULLS))
    assert (document["key"], document["value"]) == (None, None)


def test_assignment_by_hand() -> None:
    assert parse_assignment("1:2:3,2:3:1") == [[1, 2, 3], [2, 3, 1]]
    with pytest.raises(click.UsageError, match="1;2"):
        parse_assignment("1;2")


def test_topic_ids_are_printed_as_kafka_prints_them() -> None:
    assert topic_id_text(bytes(16)) == "AAAAAAAAAAAAAAAAAAAAAA"
