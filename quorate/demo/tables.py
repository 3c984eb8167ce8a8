"""``python -m quorate.demo.tables``: topics that are Iceberg and Delta tables, read with DuckDB.

It starts 3 voters, 3 brokers and a table service, and creates two topics, one for each format. An
unmodified Kafka client produces the same orders, as JSON, to both. Meanwhile the table service and
a broker are killed with kill -9. Then DuckDB reads what pyiceberg and deltalake find in the tables.

The exit code is 0 if each order is in both tables once, 1 if not or if something failed, and 130
after Ctrl-C. The demo leaves no process and no file behind.
"""

import json
import signal
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any, Final

from confluent_kafka import Producer

from quorate.client.errors import QuorateError
from quorate.client.results import NewTopic
from quorate.cluster.local_cluster_errors import LocalClusterError
from quorate.cluster.table_process import TableProcess
from quorate.demo.__main__ import DemoPrinter
from quorate.testing.running import RunningCluster, running_cluster

ORDERS: Final = 60_000
PRODUCE_S: Final = 15.0
PARTITIONS: Final = 3
COMMIT_INTERVAL_MS: Final = 1_000
SEEN_WITHIN_S: Final = 60.0
TOPICS: Final[Mapping[str, str]] = {"iceberg": "orders", "delta": "orders_delta"}
COUNTRIES: Final = ("CH", "DE", "FR", "IT", "JP")
DELIVERY_TIMEOUT_MS: Final = 120_000


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
    with running_cluster(3, 3, folder=folder / "cluster", progress=narrator.say) as cluster:
        tables = TableProcess(cluster.folder)
        try:
            narrator.say(f"the table service is process {tables.start(attached=True)}")
            _create_topics(cluster)
            _produce(narrator, cluster, tables)
            found = _wait(narrator, folder / "cluster")
        finally:
            tables.stop()
    return _conclude(narrator, found)


def _create_topics(cluster: RunningCluster) -> None:
    topics = [
        NewTopic(
            name=topic,
            num_partitions=PARTITIONS,
            replication_factor=3,
            configs={
                "table.format": format_,
                "table.commit.interval.ms": str(COMMIT_INTERVAL_MS),
            },
        )
        for format_, topic in TOPICS.items()
    ]
    with cluster.admin() as admin:
        for created in admin.create_topics(topics):
            created.raise_for_error()


def _produce(narrator: DemoPrinter, cluster: RunningCluster, tables: TableProcess) -> None:
    """Produce all orders at an even pace, and kill what has to be killed meanwhile."""
    narrator.say(f"producing {ORDERS} orders to each topic")
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
        if number == ORDERS * 2 // 3:
            victim = cluster.controller_id()
            narrator.say(f"after {number} orders: kill -9 of broker {victim}, the controller")
            cluster.kill_broker(victim)
        order = {"n": number, "country": COUNTRIES[number % len(COUNTRIES)], "amount": number % 97}
        for topic in TOPICS.values():
            _hand_over(producer, topic, b"%d" % number, json.dumps(order).encode())
        while (left_s := begin + PRODUCE_S * number / ORDERS - time.monotonic()) > 0:
            producer.poll(left_s)
    if producer.flush(DELIVERY_TIMEOUT_MS / 1000):
        raise TimeoutError("not all orders were acknowledged")


def _hand_over(producer: Producer, topic: str, key: bytes, value: bytes) -> None:
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
    while True:
        found = {"iceberg": _iceberg(folder), "delta": _delta(folder)}
        seconds = time.monotonic() - acknowledged_s
        if all(table is not None and table.num_rows >= ORDERS for table in found.values()):
            narrator.say(f"all orders are in both tables {seconds:.1f} s after the last one")
            return found
        if seconds > SEEN_WITHIN_S:
            return found
        time.sleep(0.2)


def _iceberg(folder: Path) -> Any:  # noqa: ANN401 - an Arrow table, or None
    from pyiceberg.catalog import load_catalog
    from pyiceberg.exceptions import NoSuchTableError

    catalog = f"sqlite:///{folder.resolve()}/tables/warehouse/catalog.db"
    try:
        table = load_catalog("quorate", type="sql", uri=catalog).load_table(
            f"default.{TOPICS['iceberg']}"
        )
    except NoSuchTableError:
        return None
    return table.scan().to_arrow()


def _delta(folder: Path) -> Any:  # noqa: ANN401 - an Arrow table, or None
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    try:
        table = DeltaTable(str(folder / "tables" / "warehouse" / TOPICS["delta"]))
    except TableNotFoundError:
        return None
    return table.to_pyarrow_table()


def _conclude(narrator: DemoPrinter, found: Mapping[str, Any]) -> int:
    import duckdb

    narrator.say("DuckDB: SELECT country, count(*), sum(amount) FROM orders GROUP BY country")
    lost = twice = 0
    rows: dict[str, int] = {}
    for format_, table in found.items():
        if table is None:
            raise TimeoutError(f"there is no {format_} table")
        connection = duckdb.connect()
        connection.register("topic", table)
        connection.execute(
            "CREATE VIEW orders AS SELECT CAST(decode(value) AS JSON) AS o, "
            "CAST(o->>'n' AS INTEGER) AS n, o->>'country' AS country, "
            "CAST(o->>'amount' AS INTEGER) AS amount FROM topic"
        )
        counts = connection.execute("SELECT count(*), count(DISTINCT n) FROM orders").fetchone()
        assert counts is not None
        rows[format_], different = counts
        lost += ORDERS - different
        twice += rows[format_] - different
        query = "SELECT country, count(*), sum(amount) FROM orders GROUP BY 1 ORDER BY 1"
        for country, count, amount in connection.execute(query).fetchall():
            narrator.plain(f"          {format_:<10}{country:<4}{count:>8}{amount:>10}")
    narrator.plain()
    narrator.plain(
        f"{ORDERS} produced, {rows['iceberg']} rows in Iceberg, {rows['delta']} rows in Delta, "
        f"{lost} lost, {twice} twice"
    )
    return 1 if lost or twice else 0


if __name__ == "__main__":
    sys.exit(main())
