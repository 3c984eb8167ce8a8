"""``python -m quorate.demo.tables``: topics that are Iceberg and Delta tables, read with DuckDB.

It starts 3 voters, 3 brokers with a schema registry, and a table service, and creates two topics,
one for each format. An unmodified Kafka client produces the same orders, in Avro, to both; half way
it registers a new version of their schema. A few records are no orders: they become dead letters.
Meanwhile the table service and a broker are killed with kill -9. Then DuckDB reads what pyiceberg
and deltalake find in the tables.

The exit code is 0 if each order is in both tables once, 1 if not or if something failed, and 130
after Ctrl-C. The demo leaves no process and no file behind.
"""

import importlib
import json
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from quorate.client.errors import QuorateError
from quorate.client.results import NewTopic
from quorate.cluster.local_cluster_errors import LocalClusterError
from quorate.cluster.table_process import TableProcess
from quorate.demo.__main__ import DemoPrinter
from quorate.testing.running import RunningCluster, running_cluster

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyiceberg.table import Table

ORDERS: Final = 60_000
PRODUCE_S: Final = 15.0
PARTITIONS: Final = 3
COMMIT_INTERVAL_MS: Final = 1_000
SEEN_WITHIN_S: Final = 60.0
TOPICS: Final[Mapping[str, str]] = {"iceberg": "orders", "delta": "orders_delta"}
COUNTRIES: Final = ("CH", "DE", "FR", "IT", "JP")
DELIVERY_TIMEOUT_MS: Final = 120_000
DEAD_LETTERS: Final = "orders_dead"
BAD_EVERY: Final = 10_000
"""After one order of so many, a record is produced that is none."""
_FIELDS: Final = [
    {"name": "n", "type": "long"},
    {"name": "country", "type": "string"},
    {"name": "amount", "type": "int"},
]
_NOTE: Final = {"name": "note", "type": "string", "default": ""}
SCHEMA: Final = json.dumps({"type": "record", "name": "Order", "fields": _FIELDS})
LATER_SCHEMA: Final = json.dumps({"type": "record", "name": "Order", "fields": [*_FIELDS, _NOTE]})


def main() -> int:
    """Run the demo, and return its exit code."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    narrator = DemoPrinter()
    try:
        with tempfile.TemporaryDirectory(prefix="quorate-demo-") as folder:
            return _run(narrator, Path(folder))
    except KeyboardInterrupt:
        narrator.say("interrupted; everything is stopped and removed")
        return 130
    except (LocalClusterError, QuorateError, TimeoutError, ImportError) as error:
        sys.stderr.write(f"demo: {error}\n")
        return 1


def _interrupt(signal_number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _run(narrator: DemoPrinter, folder: Path) -> int:
    narrator.plain(f"Quorate: topics {', '.join(TOPICS.values())} as {', '.join(TOPICS)} tables")
    with running_cluster(
        3,
        3,
        folder=folder / "cluster",
        progress=narrator.say,
        config={"registry.listener": "http://127.0.0.1:0"},
    ) as cluster:
        tables = TableProcess(cluster.folder)
        try:
            narrator.say(f"the table service is process {tables.start(attached=True)}")
            _create_topics(cluster)
            _load_readers()
            _produce(narrator, cluster, tables)
            found = _wait(narrator, folder / "cluster")
            dead = _dead_letters(cluster)
        finally:
            tables.stop()
    return _conclude(narrator, found, dead)


def _create_topics(cluster: RunningCluster) -> None:
    topics = [
        NewTopic(
            name=topic,
            num_partitions=PARTITIONS,
            replication_factor=3,
            configs={
                "table.format": format_,
                "table.commit.interval.ms": str(COMMIT_INTERVAL_MS),
                "table.value.format": "avro",
                "table.dead.letter.topic": DEAD_LETTERS,
            },
        )
        for format_, topic in TOPICS.items()
    ]
    topics.append(NewTopic(name=DEAD_LETTERS, num_partitions=1, replication_factor=3))
    with cluster.admin() as admin:
        for created in admin.create_topics(topics):
            created.raise_for_error()


def _produce(narrator: DemoPrinter, cluster: RunningCluster, tables: TableProcess) -> None:
    """Produce all orders at an even pace, and kill what has to be killed meanwhile."""
    narrator.say(f"producing {ORDERS} orders in Avro to each topic")
    serialize = _serializer(cluster, SCHEMA)
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "enable.idempotence": True,
            "message.timeout.ms": DELIVERY_TIMEOUT_MS,
            "topic.metadata.refresh.interval.ms": 250,
            "log_level": 0,
        }
    )
    begin = time.monotonic()
    for number in range(ORDERS):
        if number == ORDERS // 3:
            narrator.say(f"after {number} orders: kill -9 of the table service")
            tables.kill()
        if number == ORDERS // 2:
            narrator.say(f"it is started again as process {tables.start(attached=True)}")
            narrator.say("the orders get a new field, and their schema a new version")
            serialize = _serializer(cluster, LATER_SCHEMA)
        if number == ORDERS * 2 // 3:
            victim = cluster.controller_id()
            narrator.say(f"after {number} orders: kill -9 of broker {victim}, the controller")
            cluster.kill_broker(victim)
        for topic in TOPICS.values():
            _hand_over(producer, topic, b"%d" % number, serialize(topic, _order(number)))
            if number % BAD_EVERY == 0:
                _hand_over(producer, topic, b"%d" % number, b"no order")
        while (left_s := begin + PRODUCE_S * number / ORDERS - time.monotonic()) > 0:
            producer.poll(left_s)
    if producer.flush(DELIVERY_TIMEOUT_MS / 1000):
        raise TimeoutError("not all orders were acknowledged")


def _order(number: int) -> dict[str, Any]:
    order = {"n": number, "country": COUNTRIES[number % len(COUNTRIES)], "amount": number % 97}
    return order if number < ORDERS // 2 else {**order, "note": "later"}


def _serializer(
    cluster: RunningCluster, schema: str
) -> Callable[[str, Mapping[str, Any]], bytes | None]:
    """Return Confluent's own serializer of orders, which registers their schema."""
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    urls = ",".join(cluster.registry_url(one) for one in cluster.broker_ids)
    serializer = AvroSerializer(SchemaRegistryClient({"url": urls}), schema)

    def serialize(topic: str, order: Mapping[str, Any]) -> bytes | None:
        value: bytes | None = serializer(order, SerializationContext(topic, MessageField.VALUE))
        return value

    return serialize


def _hand_over(producer: Producer, topic: str, key: bytes, value: bytes | None) -> None:
    while True:
        try:
            producer.produce(topic, value, key)
        except BufferError:
            producer.poll(0.1)
        else:
            return


def _wait(narrator: DemoPrinter, folder: Path) -> dict[str, Any]:
    """Return the Arrow tables of both formats, once they have all orders or the time is over."""
    acknowledged_s = time.monotonic()
    is_over = False
    while not is_over:
        iceberg, delta = _iceberg(folder), _delta(folder)
        seconds = time.monotonic() - acknowledged_s
        if _count_of_iceberg(iceberg) >= ORDERS and _count_of_delta(delta) >= ORDERS:
            narrator.say(f"all orders are in both tables {seconds:.1f} s after the last one")
            break
        is_over = seconds > SEEN_WITHIN_S
        time.sleep(0.2)
    return {
        "iceberg": iceberg and iceberg.scan().to_arrow(),
        "delta": delta and delta.to_pyarrow_table(),
    }


def _load_readers() -> None:
    """Load what reads the tables, which takes seconds, before the clock runs."""
    for name in ("duckdb", "deltalake", "pyiceberg.catalog.sql", "pyiceberg.io.pyarrow"):
        importlib.import_module(name)


def _iceberg(folder: Path) -> "Table | None":
    from pyiceberg.catalog import load_catalog
    from pyiceberg.exceptions import NoSuchTableError

    catalog = f"sqlite:///{folder.resolve()}/tables/warehouse/catalog.db"
    try:
        return load_catalog("quorate", type="sql", uri=catalog).load_table(
            f"default.{TOPICS['iceberg']}"
        )
    except NoSuchTableError:
        return None


def _count_of_iceberg(table: "Table | None") -> int:
    """Return the number of rows that the newest snapshot tells."""
    snapshot = None if table is None else table.current_snapshot()
    if snapshot is None or snapshot.summary is None:
        return 0
    return int(snapshot.summary["total-records"] or 0)


def _delta(folder: Path) -> "DeltaTable | None":
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    try:
        return DeltaTable(str(folder / "tables" / "warehouse" / TOPICS["delta"]))
    except TableNotFoundError:
        return None


def _count_of_delta(table: "DeltaTable | None") -> int:
    """Return the number of rows that the log tells."""
    return 0 if table is None else table.count()


def _dead_letters(cluster: RunningCluster) -> int:
    """Return how many records are in the topic of dead letters."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "demo",
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    try:
        consumer.assign([TopicPartition(DEAD_LETTERS, 0, 0)])
        found = 0
        while (message := consumer.poll(SEEN_WITHIN_S)) is not None:
            if (error := message.error()) is None:
                found += 1
            elif error.code() == KafkaError._PARTITION_EOF:
                return found
        raise TimeoutError("the topic of dead letters cannot be read")
    finally:
        consumer.close()


def _conclude(narrator: DemoPrinter, found: Mapping[str, Any], dead: int) -> int:
    import duckdb

    narrator.say("DuckDB: SELECT country, note, count(*), sum(amount) FROM orders GROUP BY ALL")
    lost = twice = 0
    rows: dict[str, int] = {}
    for format_, table in found.items():
        if table is None:
            raise TimeoutError(f"there is no {format_} table")
        connection = duckdb.connect()
        connection.register("orders", table)
        counts = connection.execute("SELECT count(*), count(DISTINCT n) FROM orders").fetchone()
        assert counts is not None
        rows[format_], different = counts
        lost += ORDERS - different
        twice += rows[format_] - different
        query = "SELECT country, note, count(*), sum(amount) FROM orders GROUP BY ALL ORDER BY ALL"
        for country, note, count, amount in connection.execute(query).fetchall():
            shown = "NULL" if note is None else note or "''"
            narrator.plain(f"          {format_:<10}{country:<4}{shown:<7}{count:>8}{amount:>10}")
    expected = len(TOPICS) * -(-ORDERS // BAD_EVERY)
    narrator.say(f"{expected} records were no orders, and {dead} are in {DEAD_LETTERS}")
    narrator.plain()
    narrator.plain(
        f"{ORDERS} produced, {rows['iceberg']} rows in Iceberg, {rows['delta']} rows in Delta, "
        f"{lost} lost, {twice} twice"
    )
    return 1 if lost or twice or dead != expected else 0


if __name__ == "__main__":
    sys.exit(main())
