"""The pure parts of tables: positions, partitions, sharing of work, configurations, figures."""

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.transforms import BucketTransform, HourTransform
from pyiceberg.types import BinaryType, LongType, StringType, TimestamptzType

from quorate.common.configuration import ConfigError
from quorate.common.topic_partition import TopicPartition
from quorate.tables.data_files import FileLayout, write_files
from quorate.tables.partitioning import (
    PartitionField,
    divided,
    field_named,
    parse_partitioning,
)
from quorate.tables.service.service_config import ServiceConfig, read_service_config
from quorate.tables.service.table_topics import TableTopic, pipeline_config
from quorate.tables.service.table_worker import TableFigures
from quorate.tables.service.work_sharing import Taking, to_take
from quorate.tables.storage import absolute_location, delta_options
from quorate.tables.table_config import table_config
from quorate.tables.table_position import (
    Action,
    Mark,
    Step,
    TablePosition,
    decide,
    position_from_json,
)
from quorate.tables.write_mode import WriteMode

A, B = b"a" * 16, b"b" * 16


@pytest.mark.parametrize(
    ("quorum", "table", "was_reset", "step"),
    [
        (None, None, False, Step(Action.BEGIN)),
        (None, None, True, Step(Action.BEGIN)),
        (Mark(A, 7), None, False, Step(Action.READ, 7)),
        (Mark(A, 7), Mark(A, 7), False, Step(Action.READ, 7)),
        (Mark(A, 7), Mark(A, 7), True, Step(Action.READ, 7)),
        (Mark(A, 7), Mark(A, 9), False, Step(Action.MOVE_QUORUM, 9)),
        (Mark(A, 7), Mark(A, 5), False, Step(Action.MOVE_QUORUM, 5)),
        (None, Mark(A, 5), False, Step(Action.MOVE_QUORUM, 5)),
        (None, Mark(A, 5), True, Step(Action.MOVE_QUORUM, 5)),
        (Mark(A, 7), Mark(A, 9), True, Step(Action.MOVE_TABLE, 7)),
        (Mark(A, 7), Mark(A, 5), True, Step(Action.MOVE_TABLE, 7)),
        (Mark(A, 7), None, True, Step(Action.MOVE_TABLE, 7)),
        (Mark(A, 7), Mark(B, 7), False, Step(Action.REFUSE)),
        (Mark(A, 7), Mark(B, 7), True, Step(Action.MOVE_TABLE, 7)),
    ],
)
def test_whichever_position_has_survived_decides(
    quorum: Mark | None, table: Mark | None, was_reset: bool, step: Step
) -> None:
    assert decide(quorum, table, was_reset=was_reset) == step


def test_a_position_is_read_back_and_a_newer_one_is_refused() -> None:
    marks = {TopicPartition("t", 1): Mark(A, 5), TopicPartition("u", 0): Mark(B, 0)}
    position = TablePosition(3, 77).moved(78, marks, WriteMode.APPEND)
    document = position.to_json()
    assert position_from_json(document) == TablePosition(4, 78, marks)
    with pytest.raises(ValueError, match="its version is 3"):
        position_from_json({**document, "version": 3})
    with pytest.raises(ValueError, match="it lacks 'commits'"):
        position_from_json({name: one for name, one in document.items() if name != "commits"})


def test_partition_transforms_are_read_and_named() -> None:
    text = "hour(timestamp), bucket(16,key),identity( country )"
    fields = parse_partitioning(text)
    assert fields == (
        PartitionField("hour", "timestamp"),
        PartitionField("bucket", "key", 16),
        PartitionField("identity", "country"),
    )
    assert [one.name for one in fields] == ["timestamp_hour", "key_bucket_16", "country"]
    columns = {"timestamp", "key"}
    assert tuple(field_named(one.name, columns) for one in fields) == fields
    assert parse_partitioning("") == ()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("month(timestamp)", "is no partition transform"),
        ("day(timestamp)day(other)", "must be a comma before"),
        ("bucket(0,key)", "from 1 to 10000"),
        ("day(timestamp),day(timestamp)", "named twice"),
    ],
)
def test_what_is_no_transform_is_told(text: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        parse_partitioning(text)


def test_rows_are_divided_as_iceberg_does() -> None:
    micros = [-1, -3_600_000_000, 0, 3_599_999_999, 3_600_000_000, None]
    rows = pa.RecordBatch.from_pydict(
        {
            "timestamp": pa.array(micros, pa.timestamp("us", "UTC")),
            "name": pa.array(["a", "b", "a", None, "b", "a"]),
            "key": pa.array([b"a", b"b", b"a", b"c", None, b"a"]),
            "number": pa.array([1, 2, 3, 4, 5, -6]),
        }
    )
    for column, type_ in (("name", StringType()), ("key", BinaryType()), ("number", LongType())):
        of_value = BucketTransform(4).transform(type_)
        for key, part in divided(rows, (PartitionField("bucket", column, 4),)):
            assert {of_value(one) for one in part[column].to_pylist()} == set(key)
    fields = (PartitionField("hour", "timestamp"), PartitionField("identity", "name"))
    hour = HourTransform().transform(TimestamptzType())
    divisions = list(divided(rows, fields))
    assert sum(part.num_rows for _, part in divisions) == 6
    for key, part in divisions:
        for moment, name in zip(
            part["timestamp"].cast(pa.int64()).to_pylist(), part["name"].to_pylist(), strict=True
        ):
            assert (hour(moment), name) == key


def layout_in(folder: Path, target_bytes: int) -> FileLayout:
    return FileLayout(
        folder=absolute_location(str(folder)),
        schema=pa.schema([("n", pa.int64())]),
        partitioning=(PartitionField("identity", "n"),),
        target_bytes=target_bytes,
        compression="zstd",
        storage={},
        prefix="x",
    )


def test_files_are_cut_at_their_size_and_go_if_the_rows_fail(tmp_path: Path) -> None:
    batch = pa.RecordBatch.from_pydict({"n": [index % 40 for index in range(400)]})
    written = write_files(layout_in(tmp_path, 1), [batch, batch])
    assert sum(one.rows for one in written) == 800
    assert len(written) == 80
    for one in written:
        path = Path(one.location.removeprefix("file://"))
        assert path.stat().st_size == one.size
        assert pq.ParquetFile(path).read()["n"].unique().to_pylist() == list(one.key)

    def failing() -> object:
        yield batch
        raise OSError("broken")

    before = sorted(tmp_path.rglob("*.parquet"))
    with pytest.raises(OSError, match="broken"):
        write_files(layout_in(tmp_path, 1 << 20), failing())  # type: ignore[arg-type]
    assert sorted(tmp_path.rglob("*.parquet")) == before


def test_processes_come_to_equal_shares_without_needless_moves() -> None:
    owners: dict[str, str | None] = {f"t{n}": None for n in range(7)}

    def look(me: str) -> list[Taking]:
        mine = [table for table, owner in owners.items() if owner == me]
        taken = to_take(owners, mine, me)
        owners.update({one.table: me for one in taken})
        return taken

    assert len(look("a")) == 7
    rounds = 0
    while any([look("a"), look("b"), look("c")]):
        rounds += 1
    assert rounds == 2
    assert sorted(Counter(owners.values()).values()) == [2, 2, 3]
    owners.update({table: None for table, owner in owners.items() if owner == "c"})
    assert all(not one.take_over for one in look("b"))
    while any([look("a"), look("b")]):
        pass
    assert sorted(Counter(owners.values()).values()) == [3, 4]


def test_a_restarted_process_goes_on_with_its_own_tables() -> None:
    owners = {"t": "me", "u": "other", "v": None}
    assert to_take(owners, (), "me") == [Taking("t", True), Taking("v", False)]
    assert to_take(owners, ("t", "v"), "me") == []


def service(**settings: str) -> ServiceConfig:
    return read_service_config(
        None,
        bootstrap_servers="h:1",
        security={"security.protocol": "SSL"},
        settings={name.replace("_", "."): value for name, value in settings.items()},
    )


def topic(**values: str) -> TableTopic:
    keys = {f"table.{name.replace('_', '.')}": value for name, value in values.items()}
    return TableTopic(topic="my.orders", values=tuple(sorted(keys.items())))


def test_a_topic_becomes_a_pipeline() -> None:
    config = pipeline_config(
        topic(
            format="iceberg",
            partition_by="day(timestamp)",
            source_options='{"failOnDataLoss":false,"maxOffsetsPerTrigger":"7"}',
        ),
        service(tables_warehouse="s3://lake/w/", catalog_uri="http://c", catalog_type="rest"),
    )
    assert config.table is not None
    assert (config.name, config.table.location) == ("table.my.orders", "s3://lake/w/my.orders")
    assert config.table.name == "default.my_orders"
    assert config.table.catalog == {"uri": "http://c", "type": "rest"}
    assert config.source.limits.at_most == 7
    assert not config.source.reading.fail_on_data_loss
    assert config.source.reading.connection.security.kafka.protocol == "SSL"


@pytest.mark.parametrize(
    ("values", "settings", "told"),
    [
        ({"format": "iceberg"}, {}, "does not say table.location"),
        ({"format": "parquet"}, {"tables_warehouse": "/w"}, "table.format=parquet"),
        ({"format": "delta", "source_options": "{"}, {"tables_warehouse": "/w"}, "a JSON object"),
        ({"format": "iceberg"}, {"tables_warehouse": "s3://b/w"}, "needs a catalog"),
    ],
)
def test_what_is_missing_is_told(
    values: dict[str, str], settings: dict[str, str], told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        pipeline_config(topic(**values), service(**settings))


def test_names_of_storage_are_translated_for_delta() -> None:
    options = delta_options({"s3.endpoint": "http://h", "s3.region": "r", "AWS_X": "y"})
    assert options == {
        "AWS_ENDPOINT_URL": "http://h",
        "AWS_REGION": "r",
        "AWS_X": "y",
        "AWS_ALLOW_HTTP": "true",
    }


def test_a_local_table_gets_a_catalog_beside_it() -> None:
    config = table_config(format="iceberg", location="/lake/t", name="t")
    assert config.catalog == {"uri": "sqlite:////lake/catalog.db", "type": "sql"}
    with pytest.raises(ConfigError, match="is no name of a table"):
        table_config(format="iceberg", location="/lake/t", name="a..b")


def test_the_lag_counts_from_the_last_look_of_which_all_is_there() -> None:
    figures = TableFigures()
    figures.caught_up_at_s = 100.0
    assert figures.lag_s(130.0) == 0.0
    figures.waiting = 1
    assert figures.lag_s(130.0) == 30.0
