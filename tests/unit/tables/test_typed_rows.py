"""Typed rows of a table service: schemas that change, and records that do not fit them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from quorate.common.configuration import ConfigError
from quorate.common.topic_partition import TopicPartition
from quorate.pipeline.pipeline_errors import PipelineError
from quorate.spark.offset_ranges import OffsetRange
from quorate.spark.typed.schema_registry import NoSuchSchema
from quorate.tables.data_files import FileLayout
from quorate.tables.dead_letters import DeadLetters
from quorate.tables.local_rows import LocalRows
from quorate.tables.table_errors import TableError, TableUnavailable
from tests.support.avro_records import encode, field, record
from tests.support.fake_range_cluster import FakeRangeCluster
from tests.support.record_batches import Record
from tests.support.stub_registry import StubRegistry, framed
from tests.unit.tables.fake_producers import FakeKafka

V1 = record(field("id", "long"), field("name", "string"))
V2 = record(field("id", "long"), field("note", ["null", "string"], default=None))
GOOD, BAD = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def cluster() -> Iterator[FakeRangeCluster]:
    with FakeRangeCluster() as running:
        yield running


@pytest.fixture
def registry() -> Iterator[StubRegistry]:
    with StubRegistry() as running:
        yield running


def options(cluster: FakeRangeCluster, registry: StubRegistry, **more: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": cluster.bootstrap,
        "subscribe": "t",
        "valueFormat": "avro",
        "valueColumns": "flatten",
        "schema.registry.url": registry.url,
        **more,
    }


def values(schema_id: int, schema: Any, *rows: dict[str, Any]) -> list[bytes]:  # noqa: ANN401
    return [framed(schema_id, encode(schema, row)) for row in rows]


def put(cluster: FakeRangeCluster, partition: TopicPartition, found: list[bytes]) -> OffsetRange:
    records = [
        Record(offset, key=b"k%d" % offset, value=value, headers=(("h", b"%d" % offset),))
        for offset, value in enumerate(found)
    ]
    cluster.add(*partition, [records])
    return OffsetRange(partition, 0, len(found), topic_id=cluster.topic_ids[partition.topic])


def layout(folder: Path, schema: pa.Schema) -> FileLayout:
    return FileLayout(
        folder=f"file://{folder}",
        schema=schema,
        partitioning=(),
        target_bytes=1 << 20,
        compression="zstd",
        storage={},
        prefix="t",
    )


def written(rows: LocalRows, folder: Path, *ranges: OffsetRange) -> list[dict[str, Any]]:
    rows.plan(ranges)
    files = rows.write(ranges, layout(folder, rows.schema)).files
    return [
        row
        for one in files
        for row in pq.read_table(one.location.removeprefix("file://")).to_pylist()
    ]


def dead_letters(kafka: FakeKafka) -> DeadLetters:
    return DeadLetters("dead", "table.t", {}, producer=kafka.producer, consumer=kafka.consumer)


def test_a_new_schema_is_the_one_of_the_next_batch(
    cluster: FakeRangeCluster, registry: StubRegistry, tmp_path: Path
) -> None:
    first = registry.add("t-value", V1)
    ranges = put(cluster, GOOD, values(first, V1, {"id": 1, "name": "a"}))
    rows = LocalRows(options(cluster, registry), 2)
    assert [row["name"] for row in written(rows, tmp_path, ranges)] == ["a"]
    second = registry.add("t-value", V2)
    ranges = put(cluster, BAD, values(second, V2, {"id": 2, "note": "b"}))
    assert "note" not in rows.schema.names
    found = written(rows, tmp_path, ranges)
    assert [(row["id"], row["note"], "name" in row) for row in found] == [(2, "b", False)]
    rows.close()


def test_a_registry_that_is_away_leaves_the_schemas_as_they_are(
    cluster: FakeRangeCluster, registry: StubRegistry, tmp_path: Path
) -> None:
    first = registry.add("t-value", V1)
    ranges = put(cluster, GOOD, values(first, V1, {"id": 1, "name": "a"}))
    rows = LocalRows(options(cluster, registry, **{"fetchOffset.retryIntervalMs": "1"}), 1)
    registry.refuse = lambda path: (503, {}) if "latest" in path else None
    assert len(written(rows, tmp_path, ranges)) == 1
    registry.refuse = lambda path: (404, {}) if "latest" in path else None
    with pytest.raises(PipelineError, match="has no subject 't-value'"):
        rows.plan([ranges])
    rows.close()


def test_rows_of_bytes_need_no_topic(cluster: FakeRangeCluster, tmp_path: Path) -> None:
    ranges = put(cluster, GOOD, [b"x", b"y"])
    rows = LocalRows({"kafka.bootstrap.servers": cluster.bootstrap}, 1)
    assert [row["value"] for row in written(rows, tmp_path, ranges)] == [b"x", b"y"]
    rows.close()


def test_without_a_schema_there_are_no_rows_yet(
    cluster: FakeRangeCluster, registry: StubRegistry
) -> None:
    with pytest.raises(NoSuchSchema):
        LocalRows(options(cluster, registry), 1)


def test_a_record_that_does_not_fit_ends_the_batch_without_dead_letters(
    cluster: FakeRangeCluster, registry: StubRegistry, tmp_path: Path
) -> None:
    first = registry.add("t-value", V1)
    ranges = put(cluster, GOOD, [*values(first, V1, {"id": 1, "name": "a"}), b"junk"])
    rows = LocalRows(options(cluster, registry), 1)
    with pytest.raises(PipelineError, match="value at offset 1 of topic t partition 0 cannot be d"):
        written(rows, tmp_path, ranges)
    assert not list(tmp_path.iterdir())
    rows.close()


def test_what_does_not_fit_becomes_a_dead_letter_and_the_rest_rows(
    cluster: FakeRangeCluster, registry: StubRegistry, tmp_path: Path
) -> None:
    first = registry.add("t-value", V1)
    good = values(first, V1, *({"id": n, "name": "a"} for n in range(3)))
    ranges = [
        put(cluster, GOOD, good),
        put(cluster, BAD, [good[0], b"junk", framed(99, b""), good[1], framed(first, b"\x02")]),
    ]
    kafka = FakeKafka(queue=2)
    rows = LocalRows(options(cluster, registry), 2, dead_letters(kafka))
    found = written(rows, tmp_path, *ranges)
    assert sorted((row["partition"], row["offset"]) for row in found) == [
        (0, 0), (0, 1), (0, 2), (1, 0), (1, 3),
    ]  # fmt: skip
    assert set(found[0]) == {
        "key", "id", "name", "topic", "partition", "offset", "timestamp", "timestampType",
    }  # fmt: skip
    assert [(one.topic, one.value, one.key) for one in kafka.records] == [
        ("dead", b"junk", b"k1"),
        ("dead", framed(99, b""), b"k2"),
        ("dead", framed(first, b"\x02"), b"k4"),
    ]
    headers = [dict(one.headers) for one in kafka.records]
    assert headers[1]["h"] == b"2"
    about = {
        name.removeprefix("table.dead.letter."): value.decode()
        for name, value in headers[1].items()
    }
    assert (about["topic"], about["partition"], about["offset"]) == ("t", "1", "2")
    assert "value: schema id 99: " in about["reason"]
    assert "value: schema id 1: field name" in headers[2]["table.dead.letter.reason"].decode()
    assert {one.timestamp for one in kafka.records} == {1_700_000_000_000}
    assert kafka.offsets == {("t", 1): (5, cluster.topic_ids["t"].hex())}
    rows.close()


def test_a_repeated_batch_writes_no_dead_letter_again(
    cluster: FakeRangeCluster, registry: StubRegistry, tmp_path: Path
) -> None:
    registry.add("t-value", V1)
    ranges = put(cluster, BAD, [b"1", b"2"])
    kafka = FakeKafka(lost_answers=1)
    rows = LocalRows(options(cluster, registry), 2, dead_letters(kafka))
    with pytest.raises(TableUnavailable, match="dead letters cannot be written to topic dead"):
        written(rows, tmp_path, ranges)
    assert written(rows, tmp_path, ranges) == []
    rows.close()
    again = LocalRows(options(cluster, registry), 2, dead_letters(kafka))
    ranges = put(cluster, BAD, [b"1", b"2", b"3"])
    assert written(again, tmp_path, ranges) == []
    assert [one.value for one in kafka.records] == [b"1", b"2", b"3"]
    # A topic that was created anew has other records at the same offsets.
    cluster.topic_ids["t"] = b"another".ljust(16)
    again.close()
    anew = LocalRows(options(cluster, registry), 2, dead_letters(kafka))
    written(anew, tmp_path, put(cluster, BAD, [b"4"]))
    assert [one.value for one in kafka.records] == [b"1", b"2", b"3", b"4"]
    anew.close()


def test_a_run_that_was_taken_over_writes_no_dead_letters(
    cluster: FakeRangeCluster, registry: StubRegistry, tmp_path: Path
) -> None:
    registry.add("t-value", V1)
    ranges = put(cluster, BAD, [b"1", b"2"])
    kafka = FakeKafka()
    old, new = (LocalRows(options(cluster, registry), 1, dead_letters(kafka)) for _ in range(2))
    assert written(old, tmp_path, ranges) == []
    later = put(cluster, BAD, [b"1", b"2", b"3"])
    assert written(new, tmp_path, later) == []
    with pytest.raises(TableUnavailable):
        written(old, tmp_path, later)
    assert [one.value for one in kafka.records] == [b"1", b"2", b"3"]
    old.close()
    new.close()


def test_a_batch_that_fails_elsewhere_takes_its_dead_letters_back(
    cluster: FakeRangeCluster, registry: StubRegistry, tmp_path: Path
) -> None:
    first = registry.add("t-value", V1)
    bad = put(cluster, BAD, [b"1"])
    lost = OffsetRange(GOOD, 0, 5, topic_id=bad.topic_id)
    cluster.add(*GOOD, [[Record(4, value=framed(first, b""))]])
    kafka = FakeKafka()
    rows = LocalRows(options(cluster, registry), 1, dead_letters(kafka))
    with pytest.raises(PipelineError, match="not available"):
        written(rows, tmp_path, bad, lost)
    assert kafka.records == []
    assert written(rows, tmp_path, bad) == []
    assert [one.value for one in kafka.records] == [b"1"]
    rows.close()


def test_dead_letters_need_a_topic_and_something_typed(
    cluster: FakeRangeCluster, registry: StubRegistry, tmp_path: Path
) -> None:
    registry.add("t-value", V1)
    ranges = put(cluster, BAD, [b"1"])
    rows = LocalRows(options(cluster, registry), 1, dead_letters(FakeKafka(topics=set())))
    with pytest.raises(TableError, match=r"written to topic dead: .*nknown topic"):
        written(rows, tmp_path, ranges)
    rows.close()
    plain = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": "t"}
    with pytest.raises(ConfigError, match=r"table.dead.letter.topic needs table.value.format"):
        LocalRows(plain, 1, dead_letters(FakeKafka()))
