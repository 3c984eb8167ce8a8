"""The contract, option by option: its default, what a value does, and the error of a wrong one.

A declared option without a row here fails the last test, one that docs/SPARK.md does not describe
as declared fails the one before.
"""

from dataclasses import dataclass
from typing import Any

import pytest

from quorate.common.topic_partition import TopicPartition
from quorate.spark.errors import OptionError
from quorate.spark.offset_ranges import EARLIEST, LATEST
from quorate.spark.options import option_table as table
from quorate.spark.options.given_options import GivenOptions
from quorate.spark.options.offset_positions import (
    AtOffset,
    AtTime,
    BeforeNow,
    ByPartition,
    Everywhere,
    FromEdge,
)
from quorate.spark.options.option_declaration import AnyOption, Scope
from quorate.spark.options.topic_subscription import Subscription
from tests.support.option_reference import GUIDE, with_reference

READ = {Scope.BATCH, Scope.STREAM}
METADATA = {Scope.METADATA}
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@dataclass(frozen=True)
class Row:
    """What is promised of one option."""

    option: AnyOption
    scopes: set[Scope]
    default: Any
    good: dict[str, Any]
    """Text -> value."""
    bad: dict[str, str]
    """Text -> part of the message."""


def number(option: AnyOption, scopes: set[Scope], default: int | None, at_least: int) -> Row:
    refusal = f"it must be a whole number, at least {at_least}"
    bad = dict.fromkeys((str(at_least - 1), "1.5", "many", "", "\u0661"), refusal)
    return Row(option, scopes, default, {str(at_least): at_least, " 77 ": 77}, bad)


def offsets(option: AnyOption, scopes: set[Scope]) -> Row:
    return Row(
        option,
        scopes,
        None,
        {
            "earliest": Everywhere(FromEdge(EARLIEST)),
            " LATEST ": Everywhere(FromEdge(LATEST)),
            "latest-100": Everywhere(FromEdge(LATEST, 100)),
            "earliest + 5": Everywhere(FromEdge(EARLIEST, 5)),
            "-90s": Everywhere(BeforeNow(90_000)),
            "-10m": Everywhere(BeforeNow(600_000)),
            '{"t":{"0":-2,"1":23}}': ByPartition({T0: FromEdge(EARLIEST), T1: AtOffset(23)}),
            '{"t":{"0":-1,"1":"latest-9"}}': ByPartition(
                {T0: FromEdge(LATEST), T1: FromEdge(LATEST, 9)}
            ),
            '{"t":{"0":"-2h"}}': ByPartition({T0: BeforeNow(7_200_000)}),
        },
        {
            "first": "it must be earliest, latest, relative",
            "23": "it must be earliest, latest, relative",
            "latest+1": "it must be earliest",
            "earliest-1": "it must be earliest",
            "-10": "it must be earliest",
            "-10y": "it must be earliest",
            "- ": "it must be earliest",
            "": "it must be earliest",
            "{": "is no JSON",
            "{}": "names no partition",
            '{"t":5}': "'t' needs partitions",
            '{"t":{"x":5}}': "'x' of topic 't' is no partition number",
            '{"t":{"0":-3}}': "-3 for t-0 is no offset",
            '{"t":{"0":true}}': "True for t-0 is no offset",
            '{"t":{"0":1.5}}': "1.5 for t-0 is no offset",
            '{"t":{"0":"5"}}': "'5' for t-0 is no offset",
            '{"t":{"0":null}}': "None for t-0 is no offset",
        },
    )


def times(option: AnyOption, scopes: set[Scope]) -> Row:
    return Row(
        option,
        scopes,
        None,
        {
            '{"t":{"0":5}}': ByPartition({T0: AtTime(5)}),
            '{"t":{"0":"1970-01-01T00:00:05Z"}}': ByPartition({T0: AtTime(5_000)}),
        },
        {
            "5": "is no JSON object",
            '{"t":{"0":-5}}': "-5 for t-0 is no time",
            '{"t":{"0":"-10m"}}': "'-10m' for t-0 is no time",
            '{"t":{"0":1.5}}': "1.5 for t-0 is no time",
        },
    )


def time(option: AnyOption, scopes: set[Scope]) -> Row:
    refusal = "it must be ms since 1970, or ISO 8601 with a zone"
    return Row(
        option,
        scopes,
        None,
        {
            "1700000000000": Everywhere(AtTime(1_700_000_000_000)),
            "2023-11-14T22:13:20Z": Everywhere(AtTime(1_700_000_000_000)),
            "2023-11-14T23:13:20.5+01:00": Everywhere(AtTime(1_700_000_000_500)),
        },
        dict.fromkeys(("yesterday", "-5", "2023-11-14T22:13:20", "1950-01-01T00:00Z", ""), refusal),
    )


def log_position(option: AnyOption, default: FromEdge) -> Row:
    return Row(
        option,
        METADATA,
        default,
        {
            "23": AtOffset(23),
            "earliest": FromEdge(EARLIEST),
            "latest-100": FromEdge(LATEST, 100),
            " earliest+5 ": FromEdge(EARLIEST, 5),
        },
        dict.fromkeys(("-10m", "-1", '{"t":{"0":1}}', "", "1.5"), "a metadata offset, earl"),
    )


def text(option: AnyOption, scopes: set[Scope]) -> Row:
    return Row(option, scopes, None, {"some": "some"}, {"": "it must be text"})


def boolean(option: AnyOption, scopes: set[Scope], *, default: bool) -> Row:
    good = {"true": True, "FALSE": False}
    return Row(option, scopes, default, good, dict.fromkeys(("yes", "1", ""), "true or false"))


def formats(option: AnyOption) -> Row:
    good = {"Avro": "avro", "protobuf": "protobuf", "json": "json", "string": "string"}
    refusal = "one of binary, string, avro, protobuf, json"
    return Row(option, READ | {Scope.WRITE}, "binary", good, {"": refusal, "xml": refusal})


ROWS = [
    Row(
        table.BOOTSTRAP_SERVERS,
        set(Scope),
        None,
        {one: one for one in ("b:9092", "a:1, b:2", "b", "[::1]:9092")},
        dict.fromkeys(("", " , ", "b:x", ":1", "b:70000"), "it must be host:port"),
    ),
    number(table.RETRIES_MAX, set(Scope), 10, at_least=0),
    number(table.RETRY_INTERVAL_MS, set(Scope), 100, at_least=1),
    number(table.FRAME_TIMEOUT_MS, READ | METADATA, 120_000, at_least=1),
    Row(
        table.SUBSCRIBE,
        READ,
        None,
        {"a, b,a": Subscription(topics=("a", "b"))},
        {" , ": "names no topic", "": "names no topic"},
    ),
    Row(
        table.SUBSCRIBE_PATTERN,
        READ,
        None,
        {"orders-.*": Subscription(pattern="orders-.*")},
        {"(": "is no pattern", "": "is empty"},
    ),
    Row(
        table.ASSIGN,
        READ,
        None,
        {'{"a":[1,0,1],"b":[2]}': Subscription(partitions={"a": (0, 1), "b": (2,)})},
        {
            "a": "is no JSON",
            "[0]": "is no JSON object",
            '{"a":["0"]}': "no list of partition numbers",
            '{"a":[-1]}': "no list of partition numbers",
            '{"a":0}': "no list of partition numbers",
            '{"a":[]}': "names no partition",
        },
    ),
    offsets(table.STARTING_OFFSETS, READ),
    times(table.STARTING_OFFSETS_BY_TIMESTAMP, READ),
    time(table.STARTING_TIMESTAMP, READ),
    Row(
        table.STARTING_STRATEGY,
        READ,
        "error",
        {"error": "error", "Latest": "latest"},
        {"earliest": "it must be one of error, latest", "": "one of"},
    ),
    offsets(table.ENDING_OFFSETS, {Scope.BATCH}),
    times(table.ENDING_OFFSETS_BY_TIMESTAMP, {Scope.BATCH}),
    time(table.ENDING_TIMESTAMP, {Scope.BATCH}),
    boolean(table.FAIL_ON_DATA_LOSS, READ | METADATA, default=True),
    Row(
        table.ISOLATION_LEVEL,
        READ,
        "read_committed",
        {"read_uncommitted": "read_uncommitted", "READ_COMMITTED": "read_committed"},
        dict.fromkeys(("", "serializable"), "one of read_committed, read_uncommitted"),
    ),
    boolean(table.INCLUDE_HEADERS, READ, default=False),
    number(table.MIN_PARTITIONS, READ, None, at_least=1),
    number(table.MAX_RECORDS_PER_PARTITION, READ, None, at_least=1),
    number(table.MAX_OFFSETS_PER_TRIGGER, {Scope.STREAM} | METADATA, None, at_least=1),
    number(table.MIN_OFFSETS_PER_TRIGGER, {Scope.STREAM}, None, at_least=1),
    Row(
        table.MAX_TRIGGER_DELAY_MS,
        {Scope.STREAM},
        15 * 60_000,
        {"15m": 900_000, "500": 500, "2 h": 7_200_000, "3min": 180_000, "1d": 86_400_000, "7ms": 7},
        dict.fromkeys(("m", "-5m", "5y", "1.5h", ""), "a duration such as 500ms"),
    ),
    text(table.COMMIT_GROUP, READ),
    boolean(table.COMMIT_GROUP_MAY_GO_BACK, READ, default=False),
    text(table.SHARE_GROUP, {Scope.STREAM}),
    text(table.GROUP_ID_PREFIX, set()),
    formats(table.VALUE_FORMAT),
    formats(table.KEY_FORMAT),
    *(
        text(option, READ | {Scope.WRITE})
        for option in (
            table.VALUE_SCHEMA,
            table.KEY_SCHEMA,
            table.VALUE_SUBJECT,
            table.KEY_SUBJECT,
            table.VALUE_MESSAGE,
            table.KEY_MESSAGE,
            table.REGISTRY_USER_INFO,
            table.REGISTRY_TOKEN,
            table.REGISTRY_CA,
            table.REGISTRY_CERTIFICATE,
            table.REGISTRY_KEY,
        )
    ),
    Row(
        table.VALUE_COLUMNS,
        READ,
        "struct",
        {"Flatten": "flatten", "struct": "struct"},
        {"": "one of struct, flatten", "both": "one of struct, flatten"},
    ),
    Row(
        table.VALUE_FIELDS,
        READ,
        (),
        {"id, amount,id": ("id", "amount")},
        {" , ": "it must be names"},
    ),
    Row(
        table.MODE,
        READ,
        "failfast",
        {"PERMISSIVE": "permissive", "failfast": "failfast"},
        {"dropmalformed": "one of failfast, permissive"},
    ),
    Row(
        table.REGISTRY_URL,
        READ | {Scope.WRITE},
        (),
        {"http://a:8081, https://b/x": ("http://a:8081", "https://b/x")},
        dict.fromkeys(
            ("", "a:8081", "ftp://a", "http://u:p@a", "http://"), "it must be http(s)://"
        ),
    ),
    text(table.TOPIC, {Scope.WRITE}),
    Row(
        table.COMPRESSION,
        {Scope.WRITE},
        "none",
        {"zstd": "zstd", "LZ4": "lz4"},
        {"brotli": "one of none, gzip, snappy, lz4, zstd"},
    ),
    number(table.BATCH_BYTES, {Scope.WRITE}, 512 << 10, at_least=1),
    number(table.DELIVERY_TIMEOUT_MS, {Scope.WRITE}, 120_000, at_least=1),
    number(table.REQUEST_TIMEOUT_MS, {Scope.WRITE}, 30_000, at_least=1),
    text(table.CHECKPOINT_LOCATION, {Scope.WRITE}),
    log_position(table.STARTING_OFFSET, FromEdge(EARLIEST)),
    log_position(table.ENDING_OFFSET, FromEdge(LATEST)),
    Row(
        table.RECORD_TYPES,
        METADATA,
        (),
        {"isr_change, config_set,isr_change": ("isr_change", "config_set")},
        dict.fromkeys(("", " , "), "it must be names, with commas between"),
    ),
]


def name_of(row: Row) -> str:
    return row.option.name


def given(row: Row, value: str) -> GivenOptions:
    scope = Scope.METADATA if row.option.scopes == {Scope.METADATA} else None
    return GivenOptions({row.option.name.upper(): value}, scope)


@pytest.mark.parametrize("row", ROWS, ids=name_of)
def test_defaults_and_scopes(row: Row) -> None:
    assert GivenOptions({}, Scope.BATCH)[row.option] == row.default
    assert row.option.scopes == row.scopes


@pytest.mark.parametrize("row", ROWS, ids=name_of)
def test_values(row: Row) -> None:
    for value, meaning in row.good.items():
        assert given(row, value)[row.option] == meaning


@pytest.mark.parametrize("row", ROWS, ids=name_of)
def test_errors_name_the_option_and_what_it_may_be(row: Row) -> None:
    for value, message in row.bad.items():
        with pytest.raises(OptionError) as refusal:
            given(row, value)[row.option]
        assert f"option {row.option.name}" in str(refusal.value)
        assert message in str(refusal.value), value


@pytest.mark.parametrize("row", ROWS, ids=name_of)
def test_a_misspelt_name_is_answered_with_the_right_one(row: Row) -> None:
    scope = Scope.METADATA if row.option.scopes == {Scope.METADATA} else None
    misspelt = row.option.name[:-1] + "z"
    with pytest.raises(OptionError, match=f"unknown option .*did you mean '{row.option.name}'"):
        GivenOptions({misspelt: "1"}, scope)


def test_the_guide_has_every_option_as_it_is_declared() -> None:
    guide = GUIDE.read_text()
    assert with_reference(guide) == guide, "run python -m tests.support.option_reference"


def test_every_declared_option_has_its_row() -> None:
    rows = [row.option.name for row in ROWS]
    assert sorted(rows) == sorted(option.name for option in table.OPTIONS)
