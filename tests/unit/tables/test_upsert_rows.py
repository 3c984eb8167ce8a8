"""What a table service writes of the records of a compacted topic: the newest row of each key."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from quorate.common.configuration import ConfigError
from quorate.common.topic_partition import TopicPartition
from quorate.pipeline.pipeline_errors import PipelineError
from quorate.spark.errors import SchemaError
from quorate.spark.offset_ranges import OffsetRange
from quorate.tables import latest_rows
from quorate.tables.dead_letters import DeadLetters
from quorate.tables.latest_rows import LatestRows
from quorate.tables.local_rows import LocalRows
from quorate.tables.service.service_config import ServiceConfig, read_service_config
from quorate.tables.service.table_topics import TableTopic, pipeline_config
from quorate.tables.write_mode import WriteMode
from tests.support.fake_range_cluster import FakeRangeCluster
from tests.support.record_batches import Record
from tests.unit.tables.fake_producers import FakeKafka
from tests.unit.tables.test_typed_rows import dead_letters, layout

P = TopicPartition("t", 0)
JSON = {"valueFormat": "json", "valueSchema": "n int", "valueColumns": "flatten"}


@pytest.fixture
def cluster() -> Iterator[FakeRangeCluster]:
    with FakeRangeCluster() as running:
        yield running


def put(cluster: FakeRangeCluster, *found: tuple[bytes | None, bytes | None]) -> OffsetRange:
    records = [Record(n, key=key, value=value) for n, (key, value) in enumerate(found)]
    cluster.add(*P, [records])
    return OffsetRange(P, 0, len(found), topic_id=cluster.topic_ids["t"])


def local_rows(
    cluster: FakeRangeCluster, letters: DeadLetters | None = None, **options: str
) -> LocalRows:
    reading = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": "t", **options}
    return LocalRows(reading, 1, letters, WriteMode.UPSERT)


def written(
    rows: LocalRows, folder: Path, offsets: OffsetRange
) -> tuple[list[dict[str, Any]], list[bytes]]:
    """The rows, and the keys whose earlier rows go."""
    found = rows.write([offsets], layout(folder, rows.schema))
    rows.close()
    files = [one.location.removeprefix("file://") for one in found.files]
    return [row for one in files for row in pq.read_table(one).to_pylist()], sorted(
        found.keys[P].to_pylist()
    )


def test_the_newest_record_of_a_key_is_its_row_and_a_tombstone_is_none(
    cluster: FakeRangeCluster, tmp_path: Path
) -> None:
    offsets = put(
        cluster, (b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"b", None), (b"c", None), (b"d", b"")
    )
    rows, keys = written(local_rows(cluster), tmp_path, offsets)
    assert [(row["key"], row["value"], row["offset"]) for row in rows] == [
        (b"a", b"3", 2),
        (b"d", b"", 5),
    ]
    assert keys == [b"a", b"b", b"c", b"d"]
    assert "headers" not in rows[0]


def test_typed_keys_are_told_apart_by_their_bytes(
    cluster: FakeRangeCluster, tmp_path: Path
) -> None:
    offsets = put(
        cluster, (b'{"k":1}', b'{"n":1}'), (b'{"k": 1}', b'{"n":2}'), (b'{"k":1}', b'{"n":3}')
    )
    typed = local_rows(cluster, None, **JSON, keyFormat="json", keySchema="k int")
    rows, keys = written(typed, tmp_path, offsets)
    assert [(row["key"], row["_key"], row["n"]) for row in rows] == [
        ({"k": 1}, b'{"k": 1}', 2),
        ({"k": 1}, b'{"k":1}', 3),
    ]
    assert keys == [b'{"k": 1}', b'{"k":1}']


def test_keys_that_are_strings_need_no_second_column(
    cluster: FakeRangeCluster, tmp_path: Path
) -> None:
    offsets = put(cluster, (b"a", b'{"n":1}'), (b"a", b'{"n":2}'))
    rows, keys = written(local_rows(cluster, None, **JSON, keyFormat="string"), tmp_path, offsets)
    assert [(row["key"], row["n"], "_key" in row) for row in rows] == [("a", 2, False)]
    assert keys == [b"a"]


@pytest.mark.parametrize(
    ("schema", "key"), [('"string"', "a"), ('"bytes"', b"a")], ids=["string", "bytes"]
)
def test_keys_that_a_schema_makes_texts_are_told_apart_by_their_bytes(
    schema: str, key: object, cluster: FakeRangeCluster, tmp_path: Path
) -> None:
    """The bytes in the log have more than the text, so it does not find the earlier rows."""
    offsets = put(cluster, (b"\x02a", b'{"n":1}'), (b"\x02a", b'{"n":2}'))
    typed = local_rows(cluster, None, **JSON, keyFormat="avro", keySchema=schema)
    rows, keys = written(typed, tmp_path, offsets)
    assert [(row["key"], row["n"], row["_key"]) for row in rows] == [(key, 2, b"\x02a")]
    assert keys == [b"\x02a"]


def test_a_field_with_the_name_of_the_column_of_key_bytes_is_refused(
    cluster: FakeRangeCluster,
) -> None:
    options = {**JSON, "valueSchema": "_key int", "keyFormat": "string"}
    with pytest.raises(SchemaError, match="the value has a field '_key'"):
        local_rows(cluster, None, **options)


def test_a_record_without_a_key_ends_the_batch_or_is_a_dead_letter(
    cluster: FakeRangeCluster, tmp_path: Path
) -> None:
    offsets = put(cluster, (b"a", b"1"), (None, b"2"), (b"b", b"3"))
    alone = local_rows(cluster)
    with pytest.raises(PipelineError, match="at offset 1 of topic t partition 0 has no key"):
        alone.write([offsets], layout(tmp_path, alone.schema))
    alone.close()
    kafka = FakeKafka()
    rows, _ = written(local_rows(cluster, dead_letters(kafka)), tmp_path, offsets)
    assert [row["offset"] for row in rows] == [0, 2]
    assert [(one.key, one.value) for one in kafka.records] == [(None, b"2")]


def test_a_dead_letter_leaves_the_row_of_its_key(cluster: FakeRangeCluster, tmp_path: Path) -> None:
    offsets = put(cluster, (b"a", b'{"n":1}'), (b"a", b"junk"), (b"b", b"junk"), (b"c", None))
    kafka = FakeKafka()
    rows, keys = written(local_rows(cluster, dead_letters(kafka), **JSON), tmp_path, offsets)
    assert [(row["key"], row["n"]) for row in rows] == [(b"a", 1)]
    assert keys == [b"a", b"c"]
    assert [one.value for one in kafka.records] == [b"junk", b"junk"]


def test_rows_that_are_replaced_take_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latest_rows, "THINNED_AT_ROWS", 10)
    latest = LatestRows()
    for number in range(100):
        batch = pa.RecordBatch.from_pydict({"n": [number * 2, number * 2 + 1]})
        latest.add(batch, pa.array([b"a", b"b"]), pa.array([False, number % 2 == 1]))
        assert sum(one.rows.num_rows for one in latest._found) < 10
    assert [row for batch in latest.rows() for row in batch.to_pylist()] == [{"n": 198}]
    assert sorted(latest.keys().to_pylist()) == [b"a", b"b"]


def service(tmp_path: Path, **settings: str) -> ServiceConfig:
    return read_service_config(
        None,
        bootstrap_servers="localhost:1",
        security={},
        settings={"tables.warehouse": str(tmp_path), **settings},
    )


@pytest.mark.parametrize(
    ("policy", "message"),
    [("compact", ""), ("compact,delete", ""), ("delete", "upsert needs cleanup.policy=compact")],
)
def test_upserts_need_a_compacted_topic(policy: str, message: str, tmp_path: Path) -> None:
    values = (("table.format", "delta"), ("table.write.mode", "upsert"))
    table = TableTopic(topic="t", values=values, cleanup_policy=policy)
    if message:
        with pytest.raises(ConfigError, match=message):
            pipeline_config(table, service(tmp_path))
        return
    config = pipeline_config(table, service(tmp_path))
    assert config.source.limits.at_most == 1_000_000
    own = service(tmp_path, **{"source.maxOffsetsPerTrigger": "5"})
    assert pipeline_config(table, own).source.limits.at_most == 5
