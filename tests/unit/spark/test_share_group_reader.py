"""A share group as a streaming source: what is taken, and when it is accepted."""

import pickle
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from quorate.spark.errors import CheckpointError, OptionError
from quorate.spark.options.connection_options import ConnectionOptions
from quorate.spark.options.given_options import GivenOptions
from quorate.spark.options.option_declaration import Scope
from quorate.spark.schema import source_schema
from quorate.spark.sharing.share_group_reader import ShareGroupReader
from quorate.spark.sharing.share_options import RECORDS_MAX, ShareOptions, share_options_of
from quorate.spark.source import QuorateDataSource

LIMIT = ReadAllAvailable()
OPTIONS = {"kafka.bootstrap.servers": "h:1", "subscribe": "jobs", "shareGroup": "workers"}


class FakeMessage:
    def __init__(self, offset: int, error: Any = None) -> None:  # noqa: ANN401 - a KafkaError
        self._offset, self._error = offset, error

    def error(self) -> Any:  # noqa: ANN401
        return self._error

    def key(self) -> bytes | None:
        return None

    def value(self) -> bytes:
        return b"v%d" % self._offset

    def topic(self) -> str:
        return "jobs"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset

    def timestamp(self) -> tuple[int, int]:
        return 1, 1_500

    def headers(self) -> list[tuple[str, bytes]] | None:
        return [("h", b"1")]


class FakeError:
    def str(self) -> str:
        return "not now"


class FakeConsumer:
    """Gives what it is told to, a list for each poll."""

    def __init__(self, *polls: list[FakeMessage]) -> None:
        self.polls = list(polls)
        self.said: list[int] = []
        self.accepted: list[int] = []
        self.refuses = False
        self.is_closed = False

    def poll(self, timeout: float) -> list[FakeMessage]:
        assert not self.said, "what was taken before is not accepted"
        return self.polls.pop(0) if self.polls else []

    def acknowledge(self, message: FakeMessage) -> None:
        self.said.append(message.offset())

    def commit_sync(self, timeout: float) -> dict[Any, Any]:
        from confluent_kafka import TopicPartition

        said, self.said = self.said, []
        if self.refuses:
            return {TopicPartition("jobs", 0): "too late"}
        self.accepted += said
        return {TopicPartition("jobs", 0): None}

    def close(self) -> None:
        self.is_closed = True


def messages(*offsets: int) -> list[FakeMessage]:
    return [FakeMessage(offset) for offset in offsets]


def reader_of(
    consumer: FakeConsumer, monkeypatch: pytest.MonkeyPatch, *, partitions: int = 1
) -> ShareGroupReader:
    options = ShareOptions(
        connection=ConnectionOptions("h:1"),
        group_id="workers",
        topics=("jobs",),
        partitions=partitions,
    )
    monkeypatch.setattr(ShareGroupReader, "_opened", lambda _: consumer)
    return ShareGroupReader(options, source_schema(include_headers=True))


def offsets_of(reader: ShareGroupReader, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
    rows: Iterator[Any] = (
        row for part in reader.partitions(start, end) for row in reader.read(part)
    )
    return [row[4] for row in rows]


def test_kip_932_records_are_accepted_once_their_batch_has_succeeded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    consumer = FakeConsumer(messages(1, 2), messages(3))
    reader = reader_of(consumer, monkeypatch)
    begin = reader.initialOffset()
    first = reader.latestOffset(begin, LIMIT)
    assert offsets_of(reader, begin, first) == [1, 2]
    assert consumer.accepted == []
    second = reader.latestOffset(first, LIMIT)
    assert consumer.accepted == [1, 2]
    assert offsets_of(reader, first, second) == [3]
    reader.commit(second)
    assert consumer.accepted == [1, 2, 3]
    assert reader.latestOffset(second, LIMIT) == second


def test_kip_932_a_batch_that_is_asked_for_twice_is_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reader = reader_of(FakeConsumer(messages(1), messages(2)), monkeypatch)
    begin = reader.initialOffset()
    assert reader.latestOffset(begin, LIMIT) == reader.latestOffset(begin, LIMIT)
    assert offsets_of(reader, begin, reader.latestOffset(begin, LIMIT)) == [1]


def test_kip_932_a_batch_of_before_a_restart_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = reader_of(FakeConsumer(messages(7)), monkeypatch)
    before, planned = {"shareGroup": "workers", "batch": 4}, {"shareGroup": "workers", "batch": 5}
    assert offsets_of(reader, before, planned) == []
    following = reader.latestOffset(planned, LIMIT)
    assert following["batch"] == 6
    assert offsets_of(reader, planned, following) == [7]


def test_kip_932_what_is_refused_does_not_end_the_query(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    consumer = FakeConsumer(messages(1), messages(1))
    consumer.refuses = True
    reader = reader_of(consumer, monkeypatch)
    first = reader.latestOffset(reader.initialOffset(), LIMIT)
    second = reader.latestOffset(first, LIMIT)
    assert "records of jobs-0 come again: too late" in caplog.text
    assert offsets_of(reader, first, second) == [1]


def test_kip_932_errors_are_told_and_are_no_rows(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    reader = reader_of(FakeConsumer([FakeMessage(0, FakeError()), FakeMessage(1)]), monkeypatch)
    begin = reader.initialOffset()
    assert offsets_of(reader, begin, reader.latestOffset(begin, LIMIT)) == [1]
    assert "not now" in caplog.text


def test_kip_932_rows_have_the_columns_of_the_source_and_are_divided(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reader = reader_of(FakeConsumer(messages(1, 2, 3)), monkeypatch, partitions=2)
    begin = reader.initialOffset()
    parts = reader.partitions(begin, reader.latestOffset(begin, LIMIT))
    told = [list(reader.read(pickle.loads(pickle.dumps(part)))) for part in parts]
    assert [[row[4] for row in rows] for rows in told] == [[1, 2], [3]]
    at = datetime(1970, 1, 1, 0, 0, 1, 500_000, UTC)
    assert told[1][0] == (None, b"v3", "jobs", 0, 3, at, 0, [("h", b"1")])


def test_kip_932_a_stopped_query_leaves_the_group(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = FakeConsumer(messages(1))
    reader = reader_of(consumer, monkeypatch)
    pickle.dumps(reader)
    reader.latestOffset(reader.initialOffset(), LIMIT)
    reader.stop()
    assert consumer.is_closed
    assert consumer.accepted == []


def test_kip_932_a_checkpoint_of_another_group_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = reader_of(FakeConsumer(), monkeypatch)
    for found in ({"shareGroup": "others", "batch": 1}, {"jobs": {"0": 23}}):
        with pytest.raises(CheckpointError, match="another checkpointLocation"):
            reader.latestOffset(found, LIMIT)


# -- options ---------------------------------------------------------------------------------------


def parsed(**more: str) -> ShareOptions:
    return share_options_of(GivenOptions({**OPTIONS, **more}, Scope.STREAM))


def test_options_of_a_share_group_have_defaults() -> None:
    assert (parsed().group_id, parsed().topics) == ("workers", ("jobs",))
    assert (parsed().records_max, parsed().partitions) == (RECORDS_MAX, 1)
    some = parsed(maxOffsetsPerTrigger="7", minPartitions="3")
    assert (some.records_max, some.partitions) == (7, 3)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("startingOffsets", "earliest"),
        ("commitGroup", "g"),
        ("valueFormat", "json"),
        ("minOffsetsPerTrigger", "5"),
    ],
)
def test_options_that_a_share_group_cannot_have_are_refused(name: str, value: str) -> None:
    with pytest.raises(OptionError, match=f"option {name} is not for a query with shareGroup"):
        parsed(**{name: value})


def test_a_share_group_needs_topics() -> None:
    given = {"kafka.bootstrap.servers": "h:1", "shareGroup": "workers"}
    with pytest.raises(OptionError, match="subscribe is missing"):
        share_options_of(GivenOptions(given, Scope.STREAM))


def test_the_source_chooses_the_reader_by_the_option() -> None:
    schema = source_schema(include_headers=False)
    assert isinstance(QuorateDataSource(OPTIONS).streamReader(schema), ShareGroupReader)
