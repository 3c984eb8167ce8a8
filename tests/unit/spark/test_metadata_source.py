"""The metadata log from Spark: what is planned, what a frame becomes, and going on elsewhere."""

import asyncio
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import grpc
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from pyspark_quorate_metadata import DefaultSource
from quorate.broker.admin import metadata_change_frame as change_frames
from quorate.broker.admin.metadata_history import MetadataHistory
from quorate.common.types import ControllerEpoch, MetadataOffset, TopicPartition
from quorate.metadata_log.records import (
    ChangeNote,
    ConfigSet,
    ControllerEpochIs,
    Operation,
    Transaction,
)
from quorate.spark.errors import CheckpointError, ClusterUnavailable, OptionError, RangeUnavailable
from quorate.spark.metadata import metadata_readers as stream_reader
from quorate.spark.metadata.metadata_columns import metadata_schema
from quorate.spark.metadata.metadata_query import (
    KnownOffsets,
    MetadataOptions,
    MetadataRange,
    parse_metadata_options,
    plan_range,
)
from quorate.spark.metadata.metadata_range_reader import MetadataRangeReader
from quorate.spark.metadata.metadata_readers import MetadataStreamReader, checkpoint, range_between
from quorate.spark.metadata.source import QuorateMetadataSource
from quorate.spark.options.connection_options import ConnectionOptions
from quorate_proto.v1.admin_pb2 import MetadataChangesRequest
from tests.support.metadata import MetadataLogBuilder, session_of
from tests.support.metadata_voter import Voter

Options = dict[str, str]
SERVERS: Options = {"kafka.bootstrap.servers": "b:1"}
SCHEMA = to_arrow_schema(metadata_schema(), timezone="UTC")


def options(**changes: object) -> MetadataOptions:
    plain = MetadataOptions(connection=ConnectionOptions("b:1", retries_max=3, retry_interval_ms=1))
    return dataclasses.replace(plain, **changes)  # type: ignore[arg-type]


# --- planning -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "planned"),
    [
        ({}, (10, 50)),
        ({"startingOffset": "20", "endingOffset": "30"}, (20, 30)),
        ({"startingOffset": "latest-5"}, (45, 50)),
        ({"startingOffset": "latest-100"}, (10, 50)),
        ({"startingOffset": "earliest+3", "endingOffset": "earliest+5"}, (13, 15)),
        ({"endingOffset": "earliest+500"}, (10, 50)),
        ({"startingOffset": "latest"}, (50, 50)),
        ({"startingOffset": "3", "failOnDataLoss": "false"}, (10, 50)),
        ({"endingOffset": "99", "failOnDataLoss": "false"}, (10, 50)),
        ({"startingOffset": "3", "endingOffset": "5", "failOnDataLoss": "false"}, (10, 10)),
        ({"startingOffset": "77", "endingOffset": "99", "failOnDataLoss": "false"}, (50, 50)),
    ],
)
def test_a_range_is_planned(given: Options, planned: tuple[int, int]) -> None:
    parsed = parse_metadata_options({**SERVERS, **given})
    assert plan_range(parsed, KnownOffsets(10, 50)) == planned


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"startingOffset": "3"}, r"\[3, 50\) are not available: changes are kept for \[10, 50\)"),
        ({"endingOffset": "51"}, r"\[10, 51\) are not available"),
        ({"startingOffset": "30", "endingOffset": "20"}, "30 lies behind endingOffset 20"),
        ({"startingOffset": "60", "failOnDataLoss": "false"}, "60 lies behind endingOffset 50"),
    ],
)
def test_what_is_not_kept_is_refused(given: Options, message: str) -> None:
    with pytest.raises(RangeUnavailable, match=message):
        plan_range(parse_metadata_options({**SERVERS, **given}), KnownOffsets(10, 50))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"startingOffsets": "1"}, "did you mean 'startingOffset'"),
        ({"subscribe": "t"}, "unknown option 'subscribe'"),
        ({"recordType": "x"}, "did you mean 'recordTypes'"),
    ],
)
def test_options_of_the_other_source_are_unknown(given: Options, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse_metadata_options({**SERVERS, **given})
    with pytest.raises(OptionError, match="not for a streaming query"):
        parse_metadata_options({**SERVERS, "endingOffset": "5"}, streaming=True)


# --- frames ---------------------------------------------------------------------------------------


@pytest.fixture
def log() -> MetadataLogBuilder:
    log = MetadataLogBuilder()
    for broker_id in (0, 1, 2):
        log.start_broker(broker_id)
    log.elect_controller(1)
    log.create_topic("orders", (0, 1), (1, 2), (2, 0))
    log.reassign(TopicPartition("orders", 1), replicas=(1, 2, 0), target=(2, 0), leader=2)
    note = ChangeNote(principal="User:alice", client_host="h", client_id="", api="AlterConfigs")
    config = ConfigSet(entity_type="topic", entity_name="orders", key="a", value="1")
    epoch = (ControllerEpochIs(controller_epoch=ControllerEpoch(1)),)
    log.apply(
        Transaction(
            operations=(Operation(records=(config, note), conditions=epoch),),
            client_id=session_of(1),
            sequence=1,
            timestamp_ms=1_700_000_000_123,
        )
    )
    log.stop_broker(2)
    return log


class Broken(grpc.RpcError):
    """A connection that was lost."""


class Call:
    def __init__(self, frames: Sequence[bytes], *, breaks: bool) -> None:
        self._frames = frames
        self._breaks = breaks

    def __iter__(self) -> Iterator[bytes]:
        yield from self._frames
        if self._breaks:
            raise Broken("lost")

    def cancel(self) -> bool:
        return True


class Cluster:
    """Brokers of which each breaks off after so many frames, but the last."""

    def __init__(self, log: MetadataLogBuilder, cuts: Sequence[int], *, compacted: int = 0) -> None:
        self._log = log
        self._cuts = list(cuts)
        self._compacted = compacted
        self.asked: list[MetadataChangesRequest] = []
        self.left = 0

    def ask_any(self, attempt: str, ask: Callable[[Any], Any]) -> Any:  # noqa: ANN401 - as the real one
        return ask(self)

    def leave_broker(self) -> None:
        self.left += 1

    def unary_stream(self, method: str, request_serializer: object) -> Any:  # noqa: ANN401 - as grpc
        return self._serve

    def _serve(self, request: MetadataChangesRequest) -> Call:
        self.asked.append(request)
        frames = asyncio.run(self._frames(request))
        if not self._cuts:
            return Call(frames, breaks=False)
        return Call(frames[: self._cuts.pop(0)], breaks=True)

    async def _frames(self, request: MetadataChangesRequest) -> list[bytes]:
        voter = Voter(self._log, compacted=self._compacted)
        frames = MetadataHistory(voter, voter).changes(
            MetadataOffset(request.start_offset),
            MetadataOffset(request.end_offset),
            frozenset(request.record_types),
        )
        return [frame.SerializeToString() async for frame in frames]


def read(cluster: Any, start: int, end: int, **changes: object) -> list[dict[str, Any]]:  # noqa: ANN401 - a stand-in
    reader = MetadataRangeReader(cluster, MetadataRange(start, end), options(**changes), SCHEMA)
    return [row for batch in reader.batches() for row in batch.to_pylist()]


def test_a_row_has_what_the_change_had(log: MetadataLogBuilder) -> None:
    rows = read(Cluster(log, []), 1, log.image.offset + 1)
    (config,) = [row for row in rows if row["record_type"] == "config_set"]
    assert {name: value for name, value in config.items() if value is not None} == {
        "offset": log.image.offset - 1,
        "record": 0,
        "time": datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=UTC),
        "controller_epoch": 1,
        "writer": "",
        "writer_broker": 1,
        "principal": "User:alice",
        "client_host": "h",
        "client_id": "",
        "api": "AlterConfigs",
        "record_type": "config_set",
        "key": "/config/topic/orders",
        "new": '{"a":"1"}',
        "topic": "orders",
        "entity_type": "topic",
        "entity_name": "orders",
        "config": "a",
        "new_value": "1",
    }
    moved = next(row for row in rows if row["record_type"] == "partition_reassignment")
    assert (moved["topic"], moved["partition"]) == ("orders", 1)
    assert (moved["old_leader"], moved["leader"]) == (1, 2)
    assert (moved["old_leader_epoch"], moved["leader_epoch"]) == (0, 1)
    assert (moved["old_replicas"], moved["replicas"]) == ([1, 2], [1, 2, 0])
    assert (moved["old_isr"], moved["isr"]) == ([1, 2], [1, 2])
    assert (moved["time"], moved["principal"], moved["client_id"]) == (None, None, None)
    gone = rows[-1]
    assert (gone["key"], gone["broker"], gone["new"]) == ("/brokers/ids/2", 2, None)
    assert gone["writer"] == "quorum"


@pytest.mark.parametrize("rows_max", [1, 2, 100])
def test_reading_goes_on_at_another_broker_wherever_it_broke(
    log: MetadataLogBuilder, rows_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = log.image.offset + 1
    whole = read(Cluster(log, []), 1, end)
    monkeypatch.setattr(change_frames, "ROWS_MAX", rows_max)
    frames = asyncio.run(Cluster(log, [])._frames(MetadataChangesRequest(end_offset=end)))
    for cut in range(len(frames)):
        cluster = Cluster(log, [cut, 3])
        assert read(cluster, 1, end) == whole
        assert cluster.left == len(cluster.asked) - 1


def test_only_the_record_types_asked_for(log: MetadataLogBuilder) -> None:
    cluster = Cluster(log, [])
    rows = read(cluster, 1, log.image.offset + 1, record_types=("session_closed",))
    assert {row["record_type"] for row in rows} == {"session_closed"}
    assert cluster.asked[0].record_types == ["session_closed"]


def test_a_log_compacted_since_the_plan_is_a_loss(log: MetadataLogBuilder) -> None:
    end = log.image.offset + 1
    with pytest.raises(RangeUnavailable, match=rf"\[3, {end}\) are not available"):
        read(Cluster(log, [], compacted=10), 3, end)
    left = read(Cluster(log, [], compacted=10), 3, end, fail_on_data_loss=False)
    assert left == [row for row in read(Cluster(log, []), 1, end) if row["offset"] > 10]


def test_brokers_that_never_get_further_are_given_up(log: MetadataLogBuilder) -> None:
    with pytest.raises(ClusterUnavailable, match=r"metadata offsets \[1, 5\) failed 4 times"):
        read(Cluster(log, [0] * 4), 1, 5)


# --- streaming ------------------------------------------------------------------------------------


def streaming(monkeypatch: pytest.MonkeyPatch, latest: int, **changes: object) -> Any:  # noqa: ANN401 - with a patched method
    reader = MetadataStreamReader(options(**changes), metadata_schema())
    monkeypatch.setattr(
        reader, "_ask", lambda latest_only: KnownOffsets(0 if latest_only else 10, latest, "c")
    )
    return reader


def test_micro_batches_follow_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = streaming(monkeypatch, 50)
    begun = reader.initialOffset()
    assert begun == checkpoint(10, "c")
    end = reader.latestOffset(begun, ReadAllAvailable())
    assert [one.value for one in reader.partitions(begun, end)] == [(10, 50)]
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    assert reader.partitions(end, end) == []
    assert reader.latestOffset(begun, ReadMaxRows(7)) == checkpoint(17, "c")
    assert streaming(
        monkeypatch, 50, max_offsets_per_trigger=7
    ).getDefaultReadLimit() == ReadMaxRows(7)


def test_an_idle_log_is_asked_about_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    now, latest, asked = 100.0, 50, 0
    reader = MetadataStreamReader(options(), metadata_schema(), lambda: now)

    def ask(*, latest_only: bool) -> KnownOffsets:
        nonlocal asked
        asked += 1
        return KnownOffsets(10, latest, "c")

    monkeypatch.setattr(reader, "_ask", ask)
    end = checkpoint(50, "c")
    for _ in range(5):
        assert reader.latestOffset(end, ReadAllAvailable()) == end
    assert asked == 1
    now, latest = 101.0, 51
    assert reader.latestOffset(end, ReadAllAvailable()) == checkpoint(51, "c")


def test_what_comes_after_available_now_began_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = streaming(monkeypatch, 50)
    reader.prepareForTriggerAvailableNow()
    monkeypatch.setattr(reader, "_ask", lambda latest_only: KnownOffsets(10, 99, "c"))
    assert reader.latestOffset(checkpoint(10, "c"), ReadAllAvailable()) == checkpoint(50, "c")


@pytest.mark.parametrize(
    ("start", "message"),
    [
        (checkpoint(5, "other"), "is of cluster 'other', this one is 'c'"),
        (checkpoint(51, "c"), "restored from a backup"),
        ({**checkpoint(5, "c"), "version": stream_reader.VERSION + 1}, "of a newer release"),
        ({"t": {"0": 5}}, "is no offset of quorate-metadata"),
    ],
)
def test_a_checkpoint_of_something_else_is_refused(start: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        range_between(start, checkpoint(50, "c"))


def test_the_source_selects_columns_by_name_and_type() -> None:
    from pyspark.sql.types import IntegerType, StructField, StructType

    from quorate.spark.errors import SchemaError

    assert DefaultSource is QuorateMetadataSource
    source = QuorateMetadataSource({**SERVERS})
    assert source.name() == "quorate-metadata"
    assert source.reader(StructType([StructField("leader", IntegerType())]))
    with pytest.raises(SchemaError, match="did you mean 'leader'"):
        source.reader(StructType([StructField("leeder", IntegerType())]))
    with pytest.raises(SchemaError, match="did you mean 'leader'"):
        source.streamReader(StructType([StructField("leeder", IntegerType())]))
