"""Measures typed columns: records of ten fields in Avro, Protobuf and JSON, beside Python by row.

First the decoders alone, on one core of this process: the values of a batch into Arrow's columns,
and the same by a library for Python (fastavro, protobuf, json) with `pyarrow.array` over its rows.
Then whole queries of Spark, ``local[2]`` with one broker, over all ten fields: typed columns, and a
Python UDF over binary values. CPU seconds say what a core does, whatever else runs on the machine.

Spark's own ``from_avro`` over its own Kafka source stands beside it, where Maven has their jars.
"""

import io
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import fastavro
import pyarrow as pa
from google.protobuf import message_factory
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.pandas.types import to_arrow_type

from bench._support import Bench
from bench.spark_reading.processes import JVM, WORKERS, CpuClock
from quorate.client.admin import AdminClient
from quorate.client.results import NewTopic
from quorate.spark.session import local_session
from quorate.spark.typed.avro_format import AvroFormat
from quorate.spark.typed.avro_schema import parse_avro
from quorate.spark.typed.decoders import decoder_of
from quorate.spark.typed.json_format import JsonFormat
from quorate.spark.typed.json_types import json_type
from quorate.spark.typed.protobuf_format import protobuf_format
from quorate.spark.typed.protobuf_text import descriptors_of
from quorate.spark.typed.value_formats import ValueFormat
from quorate.spark.writing.write_options import parse_write_options
from quorate.spark.writing.write_task import write_rows
from quorate.testing import RunningCluster, running_cluster
from tests.support.kafka_jars import NoKafka
from tests.support.spark_jars import connector_jars

BATCH_ROWS: Final = 16_000
"""About as many rows as an Arrow batch of the source has."""
PARTITIONS: Final = 2
AVRO: Final[dict[str, Any]] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": "string"},
        {"name": "amount", "type": "double"},
        {"name": "quantity", "type": "int"},
        {"name": "paid", "type": "boolean"},
        {"name": "country", "type": "string"},
        {"name": "created", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "discount", "type": ["null", "double"]},
        {"name": "note", "type": ["null", "string"]},
        {"name": "status", "type": {"type": "enum", "name": "S", "symbols": ["NEW", "SENT"]}},
    ],
}
PROTO: Final = """
syntax = "proto3";
message Order {
  enum Status { NEW = 0; SENT = 1; }
  int64 id = 1; string customer = 2; double amount = 3; int32 quantity = 4; bool paid = 5;
  string country = 6; int64 created = 7; optional double discount = 8; optional string note = 9;
  Status status = 10;
}
"""
COLUMNS: Final = (
    "id bigint, customer string, amount double, quantity int, paid boolean, country string, "
    "created bigint, discount double, note string, status string"
)
UDF_TYPE: Final = COLUMNS.replace("created bigint", "created timestamp")


def order(number: int) -> dict[str, Any]:
    """Return the fields of a row; the enum is its number."""
    return {
        "id": number,
        "customer": f"customer-{number % 10_007}",
        "amount": number * 1.25,
        "quantity": number % 9,
        "paid": number % 2 == 0,
        "country": "DE" if number % 3 else "FR",
        "created": 1_700_000_000_000 + number,
        "discount": None if number % 2 else 0.5,
        "note": None if number % 3 else "to be called",
        "status": number % 2,
    }


@dataclass(frozen=True)
class Case:
    """A format: how rows are encoded, typed, and decoded one by one in Python."""

    name: str
    typed: ValueFormat
    schema: str
    encode: Callable[[Mapping[str, Any]], bytes]
    row: Callable[[bytes], Any]


def cases() -> Iterator[Case]:
    """Yield the formats."""
    text = json.dumps(AVRO)
    avro: Any = fastavro.parse_schema(json.loads(text))

    def encode_avro(fields: Mapping[str, Any]) -> bytes:
        out = io.BytesIO()
        status = ("NEW", "SENT")[fields["status"]]
        fastavro.schemaless_writer(out, avro, {**fields, "status": status})
        return out.getvalue()

    def read_avro(value: bytes) -> Any:  # noqa: ANN401 - a row
        return fastavro.schemaless_reader(io.BytesIO(value), avro, None)

    yield Case("avro", AvroFormat(parse_avro(text)), text, encode_avro, read_avro)
    proto = protobuf_format(descriptors_of(PROTO), None, None)
    message: Any = message_factory.GetMessageClass(proto.descriptor())
    fields = [field.name for field in proto.descriptor().fields]

    def encode_proto(row: Mapping[str, Any]) -> bytes:
        data: bytes = message(**row).SerializeToString()
        return data

    def read_proto(value: bytes) -> Any:  # noqa: ANN401 - a row
        read = message.FromString(value)
        row = {name: getattr(read, name) for name in fields}
        row["status"] = ("NEW", "SENT")[row["status"]]
        return row

    yield Case("protobuf", proto, PROTO, encode_proto, read_proto)

    def encode_json(row: Mapping[str, Any]) -> bytes:
        return json.dumps({**row, "status": ("NEW", "SENT")[row["status"]]}).encode()

    yield Case("json", JsonFormat(json_type(COLUMNS)), COLUMNS, encode_json, json.loads)


def measure_decoders(bench: Bench) -> None:
    """Measure the decoders alone, on one core."""
    batches = bench.pick(full=30, quick=5)
    for case in cases():
        values = pa.array([case.encode(order(n)) for n in range(BATCH_ROWS)], pa.binary())
        type_ = to_arrow_type(case.typed.spark_type, timezone="UTC")
        decoder = decoder_of(case.typed)
        decoder.decode(values, type_, stop_at_bad=True)

        def typed(decoder: Any = decoder, values: Any = values, type_: Any = type_) -> None:  # noqa: ANN401
            decoder.decode(values, type_, stop_at_bad=True)

        def rows(case: Case = case, values: Any = values, type_: Any = type_) -> None:  # noqa: ANN401
            pa.array([case.row(value) for value in values.to_pylist()], type_)

        def measure(typed: Any = typed, rows: Any = rows) -> dict[str, float]:  # noqa: ANN401
            ours, python = rate(typed, batches), rate(rows, max(1, batches // 15))
            return {
                "typed, Mrow/s/core": ours,
                "row by row, Mrow/s/core": python,
                "times": ours / python,
            }

        sizes = len(values.buffers()[2]) / len(values)
        about: dict[str, int | float | str] = {
            "case": f"decoder alone, {case.name}", "bytes": round(sizes)
        }  # fmt: skip
        bench.row(about, bench.repeat(measure))


def rate(action: Callable[[], None], batches: int) -> float:
    """Return millions of rows for each second of CPU time."""
    started = time.process_time()
    for _ in range(batches):
        action()
    return batches * BATCH_ROWS / (time.process_time() - started) / 1e6


def create(cluster: RunningCluster, case: Case, rows: int) -> None:
    """Create a topic with so many rows; the same batch of values again and again."""
    with AdminClient(cluster.bootstrap) as admin:
        topic = NewTopic(name=case.name, num_partitions=PARTITIONS, replication_factor=1)
        admin.create_topics([topic])[0].raise_for_error()
    values = pa.array([case.encode(order(n)) for n in range(BATCH_ROWS)], pa.binary())
    batch = pa.RecordBatch.from_arrays([values], ["value"])
    options = parse_write_options(
        {"kafka.bootstrap.servers": cluster.bootstrap, "topic": case.name}
    )
    write_rows(options, (batch for _ in range(rows // BATCH_ROWS)), task=0)


def measure_queries(bench: Bench, cluster: RunningCluster) -> None:
    """Measure queries that look at every field."""
    batches = bench.pick(full=120, quick=10)
    broker = cluster.broker_pid(cluster.broker_ids[0])
    assert broker is not None
    try:
        jars = connector_jars()
    except NoKafka as missing:
        print(f"without Spark's own from_avro: {missing}")
        jars = []
    spark = local_session("quorate-bench", settings={"spark.jars": ",".join(map(str, jars))})
    try:
        for case in cases():
            create(cluster, case, batches * BATCH_ROWS)
            rows = batches * BATCH_ROWS
            typed = typed_query(spark, cluster, case)
            typed()
            samples = bench.repeat(partial(timed, typed, rows, broker))
            bench.row({"case": f"Spark, {case.name}, typed columns"}, samples)
            if case.name == "avro" and jars:
                theirs = from_avro_query(spark, cluster, case)
                theirs()
                samples = bench.repeat(partial(timed, theirs, rows, broker))
                bench.row({"case": "Spark, avro, its own from_avro and Kafka source"}, samples)
        for case in cases():
            rows = BATCH_ROWS * max(1, batches // 10)
            by_rows = udf_query(spark, cluster, case, rows)
            by_rows()
            samples = bench.repeat(partial(timed, by_rows, rows, broker))
            bench.row({"case": f"Spark, {case.name}, Python UDF"}, samples)
    finally:
        spark.stop()


def typed_query(spark: SparkSession, cluster: RunningCluster, case: Case) -> Callable[[], object]:
    """Return a query over typed columns."""
    reader = (
        spark.read.format("quorate")
        .option("kafka.bootstrap.servers", cluster.bootstrap)
        .option("valueFormat", case.name)
        .option("valueSchema", case.schema)
        .option("valueColumns", "flatten")
    )
    names = [part.strip().split(" ")[0] for part in COLUMNS.split(",")]
    whole = reader.load(case.name)
    # Only the ten fields cross from Python to the JVM.
    fields = ", ".join(f"{name} {whole.schema[name].dataType.simpleString()}" for name in names)
    return lambda: reader.schema(fields).load(case.name).agg(*_aggregates()).collect()


def from_avro_query(
    spark: SparkSession, cluster: RunningCluster, case: Case
) -> Callable[[], object]:
    """Return the query over Spark's own Kafka source and its own decoder."""
    frame = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", cluster.bootstrap)
        .option("subscribe", case.name)
        .load()
        .select(from_avro("value", case.schema).alias("row"))
        .select("row.*")
    )
    return lambda: frame.agg(*_aggregates()).collect()


def udf_query(
    spark: SparkSession, cluster: RunningCluster, case: Case, rows: int
) -> Callable[[], object]:
    """Return the query over a UDF that decodes row by row."""
    name = case.name
    type_ = UDF_TYPE if name == "avro" else COLUMNS

    def decode(value: bytearray) -> Any:  # noqa: ANN401 - a row
        # The functions of a case hold descriptors, which do not travel.
        if name not in _rows:
            _rows.update({one.name: one.row for one in cases()})
        return _rows[name](bytes(value))

    decoded = F.udf(decode, f"struct<{type_}>")
    offsets = json.dumps({name: {str(n): rows // PARTITIONS for n in range(PARTITIONS)}})
    frame = (
        spark.read.format("quorate")
        .option("kafka.bootstrap.servers", cluster.bootstrap)
        .option("endingOffsets", offsets)
        .schema("value binary")
        .load(name)
        .select(decoded("value").alias("row"))
        .select("row.*")
    )
    return lambda: frame.agg(*_aggregates()).collect()


_rows: dict[str, Callable[[bytes], Any]] = {}


def _aggregates() -> list[Any]:
    """Look at each of the ten fields."""
    texts = ("customer", "country", "note", "status")
    numbers = ("id", "amount", "quantity", "discount")
    return [
        *(F.sum(F.length(name)) for name in texts),
        *(F.max(name) for name in numbers),
        F.max("created"),
        F.count_if(F.col("paid")),
    ]


def timed(query: Callable[[], object], rows: int, broker: int) -> dict[str, float]:
    """Run a query, and return what it took."""
    clock = CpuClock({"broker": broker})
    started = time.perf_counter()
    query()
    seconds = time.perf_counter() - started
    spent = clock.elapsed()
    workers = spent[f"{WORKERS} CPU s"]
    return {
        "Mrow/s": rows / seconds / 1e6,
        "Mrow per CPU s of workers": rows / workers / 1e6 if workers else 0.0,
        "Mrow per CPU s in all": rows / sum(spent.values()) / 1e6,
        "JVM CPU s": spent[f"{JVM} CPU s"],
        "workers CPU s": workers,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    bench = Bench.from_command_line(
        "Spark typed columns",
        "ten fields in Avro, Protobuf and JSON; 1 broker, local[2]",
        arguments,
    )
    measure_decoders(bench)
    with running_cluster(config={"log.flush": "os"}) as cluster:
        measure_queries(bench, cluster)
    bench.finish()


if __name__ == "__main__":
    main()
