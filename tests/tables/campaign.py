"""Topics become typed tables while whoever works on it is killed, again and again.

Records are in Avro, with one field that is called ``value``, so the column `value` of a table has
what was put into the record. Some records are none: they must be in the topic of dead letters.
"""

import json
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from quorate.client.results import NewTopic
from quorate.cluster.client_options import client_options_of
from quorate.tables.write_mode import WriteMode
from quorate.testing import RunningCluster
from tests.tables.readers import Rows, delta_rows, iceberg_rows
from tests.tables.victim import POINTS

PARTITIONS: Final = 3
TOPICS: Final = {"iceberg": "rows_iceberg", "delta": "rows_delta"}
DEAD_LETTERS: Final = "dead"
PAUSE_S: Final = 0.004
BAD_EVERY: Final = 101
"""One record of so many is none in Avro; the number shares no factor with the partitions."""
SCHEMA: Final = {
    "type": "record",
    "name": "Row",
    "fields": [{"name": "value", "type": "bytes"}],
}
SETTLE_S: Final = 180.0
STEP_S: Final = 60.0
KEYS, RARE_KEYS = 300, 30_000
"""How many keys records have in a table that is kept by upserts; one record in four has a rare one.
A key stays in its partition, as these are multiples of the number of partitions."""
DELETED_EVERY: Final = 7
"""One record of so many is a tombstone then."""
COMPACTED: Final = {
    "cleanup.policy": "compact",
    "max.compaction.lag.ms": "1000",
    "min.cleanable.dirty.ratio": "0.01",
    "table.write.mode": "upsert",
}


class Service:
    """A table service in a process of its own, armed or not."""

    def __init__(
        self, cluster: RunningCluster, warehouse: Path, name: str, log: Path, *more: str
    ) -> None:
        self._arguments = ["tables", "run", "--bootstrap-server", cluster.bootstrap, *more]
        settings = {
            "tables.warehouse": warehouse,
            "tables.id": name,
            "tables.look.interval.ms": 200,
            "tables.lease.ms": 2_000,
        }
        for key, value in settings.items():
            self._arguments += ["--set", f"{key}={value}"]
        if options := client_options_of(cluster.folder):
            config = log.with_suffix(".properties")
            config.write_text("".join(f"{key}={value}\n" for key, value in options.items()))
            self._arguments += ["--command-config", str(config)]
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, point: str = POINTS[0], times: int = 0) -> None:
        """Start it; it kills itself at the point, or never."""
        command = [sys.executable, "-P", "-m", "tests.tables.victim", point, str(times)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, *self._arguments], stdout=log, stderr=log, cwd=Path(__file__).parents[2]
            )

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def wait(self) -> None:
        """Wait until it has killed itself."""
        assert self._process is not None
        self._process.wait(STEP_S)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(60)


class Load:
    """Produces to every partition of both topics until it is stopped."""

    def __init__(self, bootstrap: str, mode: WriteMode = WriteMode.APPEND) -> None:
        self._mode = mode
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0}
        )
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()
        assert self._producer.flush(SETTLE_S) == 0

    def _run(self) -> None:
        number = 0
        while not self._stopped.is_set():
            key, value = self._record(number)
            for topic in TOPICS.values():
                self._producer.produce(topic, value, key, partition=number % PARTITIONS)
            self._producer.poll(0)
            number += 1
            time.sleep(PAUSE_S)

    def _record(self, number: int) -> tuple[bytes | None, bytes | None]:
        """Return a key and a value; a key stays in its partition."""
        is_bad = number % BAD_EVERY == 0
        value = bad_value(number) if is_bad else avro(b"%d" % number)
        if self._mode is WriteMode.APPEND:
            return None, value
        if is_bad:
            # Nothing replaces it, so the topic keeps it for the check.
            return b"bad%d" % number, value
        key = b"k%d" % (number % (KEYS if number % 4 else RARE_KEYS))
        return key, None if number % DELETED_EVERY == 0 else value


def avro(content: bytes) -> bytes:
    """A record of `SCHEMA`; the content has less than 64 bytes."""
    return bytes([2 * len(content)]) + content


def bad_value(number: int) -> bytes:
    """No record of `SCHEMA`: it says that it is longer than it is."""
    return b"\x7e%d" % number


class Campaign:
    """One campaign: `run` it, then `check`."""

    def __init__(
        self,
        cluster: RunningCluster,
        folder: Path,
        seed: int,
        say: Callable[[str], None],
        mode: WriteMode = WriteMode.APPEND,
    ) -> None:
        self._cluster = cluster
        self._mode = mode
        self._warehouse = folder / "warehouse"
        self._random = random.Random(seed)
        self._say = say
        self.services = [
            Service(cluster, self._warehouse, name, folder / f"{name}.log") for name in ("a", "b")
        ]
        self.kills: Counter[str] = Counter()

    def run(self, kills: int) -> None:
        """Create the topics, and kill as often as told while records are produced."""
        self.create_topics()
        load = Load(self._cluster.bootstrap, self._mode)
        try:
            while self.kills.total() < kills:
                self._strike()
                if self.kills.total() % 10 == 0:
                    self._say(f"{self.kills.total()} kills")
        finally:
            load.stop()
            for service in self.services:
                service.kill()
        self._say(f"{self.kills.total()} kills: {dict(sorted(self.kills.items()))}")

    def check(self) -> dict[str, int]:
        """Let a service finish, and compare the tables with the topics, row by row.

        Returns:
            The number of rows by format.

        Raises:
            AssertionError: a row is missing, there twice, or another one.
        """
        self.services[0].start()
        try:
            rows = {format_: self._settled(format_) for format_ in TOPICS}
        finally:
            self.services[0].stop()
        self._check_dead_letters()
        return rows

    def _strike(self) -> None:
        kind = self._random.choices(["point", "service", "broker", "voter"], weights=[10, 3, 2, 1])[
            0
        ]
        {
            "point": self._kill_at_point,
            "service": self._kill_service,
            "broker": self._kill_broker,
            "voter": self._kill_voter,
        }[kind]()

    def _kill_at_point(self) -> None:
        """One service dies at a point of its own work; the other one may take over."""
        service = self._random.choice(self.services)
        service.kill()
        point, times = self._random.choice(POINTS), self._random.randint(1, 5)
        service.start(point, times)
        deadline_s = time.monotonic() + STEP_S
        while service.is_alive and time.monotonic() < deadline_s:
            time.sleep(0.05)
        if service.is_alive:
            service.kill()
            point = "any time"
        self.kills[f"service {point}"] += 1

    def _kill_service(self) -> None:
        service = self._random.choice(self.services)
        if not service.is_alive:
            service.start()
        time.sleep(self._random.uniform(1.0, 5.0))
        service.kill()
        self.kills["service any time"] += 1
        if self._random.random() < 0.5:
            service.start()

    def _kill_broker(self) -> None:
        victim = self._random.choice(self._cluster.broker_ids)
        self._cluster.kill_broker(victim)
        time.sleep(self._random.uniform(0.0, 3.0))
        self._cluster.restart_broker(victim)
        self.kills["broker"] += 1

    def _kill_voter(self) -> None:
        victim = self._random.choice(self._cluster.voter_ids)
        self._cluster.kill_voter(victim)
        time.sleep(self._random.uniform(0.0, 2.0))
        self._cluster.restart_voter(victim)
        self.kills["voter"] += 1

    def create_topics(self) -> None:
        """Create a topic for each format, and the one of dead letters."""
        topics = [
            NewTopic(
                name=topic,
                num_partitions=PARTITIONS,
                replication_factor=min(3, len(self._cluster.broker_ids)),
                configs={
                    "table.format": format_,
                    "table.commit.interval.ms": "200",
                    "table.value.format": "avro",
                    "table.source.options": json.dumps({"valueSchema": json.dumps(SCHEMA)}),
                    "table.dead.letter.topic": DEAD_LETTERS,
                    **(COMPACTED if self._mode is WriteMode.UPSERT else {}),
                },
            )
            for format_, topic in TOPICS.items()
        ]
        topics.append(NewTopic(name=DEAD_LETTERS, num_partitions=PARTITIONS, replication_factor=-1))
        with self._cluster.admin() as admin:
            for created in admin.create_topics(topics):
                created.raise_for_error()

    def _settled(self, format_: str) -> int:
        """Wait until the table has the rows that the topic makes, and compare them."""
        expected = _expected(self._cluster.bootstrap, TOPICS[format_], self._mode)
        deadline_s = time.monotonic() + SETTLE_S
        while True:
            found = self._rows(format_)
            if found == expected or time.monotonic() > deadline_s:
                break
            time.sleep(0.5)
        lost, more = expected - found, found - expected
        assert not lost, f"{format_}: {lost.total()} rows are lost, as {sorted(lost)[:5]}"
        assert not more, f"{format_}: {more.total()} rows are too many, as {sorted(more)[:5]}"
        return found.total()

    def _check_dead_letters(self) -> None:
        """Each record that is none in Avro is there once, with the place where it was."""
        expected: Counter[tuple[str, int, int, bytes]] = Counter()
        for topic in TOPICS.values():
            for message in consumed(self._cluster.bootstrap, topic):
                if is_bad(message):
                    expected[topic, message.partition(), message.offset(), message.value()] += 1
        found: Counter[tuple[str, int, int, bytes]] = Counter()
        for message in consumed(self._cluster.bootstrap, DEAD_LETTERS):
            headers = dict(message.headers())
            topic, number, offset = (
                headers[f"table.dead.letter.{name}"].decode()
                for name in ("topic", "partition", "offset")
            )
            found[topic, int(number), int(offset), message.value()] += 1
        lost, more = expected - found, found - expected
        assert not lost, f"{lost.total()} dead letters are lost, as {sorted(lost)[:5]}"
        assert not more, f"{more.total()} dead letters are there twice, as {sorted(more)[:5]}"
        self._say(f"{found.total()} dead letters, each once")

    def _rows(self, format_: str) -> Rows:
        if format_ == "delta":
            return delta_rows(self._warehouse / TOPICS["delta"])
        return iceberg_rows(self._warehouse, TOPICS["iceberg"])


def _expected(bootstrap: str, topic: str, mode: WriteMode) -> Rows:
    """The rows that a topic makes: all records, or the newest one of each key."""
    messages = [one for one in consumed(bootstrap, topic) if not is_bad(one)]
    if mode is WriteMode.UPSERT:
        newest = {(one.partition(), one.key()): one for one in messages}
        messages = [one for one in newest.values() if one.value() is not None]
    return Counter((one.partition(), one.offset(), one.value()[1:]) for one in messages)


def is_bad(message: Any) -> bool:  # noqa: ANN401 - of confluent-kafka
    """Return whether a record is none in Avro."""
    return (message.value() or b"")[:1] == b"\x7e"


def consumed(bootstrap: str, topic: str) -> list[Any]:
    """All records of a topic, as confluent-kafka consumes them."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "check",
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        found: list[Any] = []
        ended: set[int | None] = set()
        while len(ended) < PARTITIONS:
            for message in consumer.consume(10_000, 1.0):
                if (error := message.error()) is None:
                    found.append(message)
                    continue
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended.add(message.partition())
        return found
    finally:
        consumer.close()
