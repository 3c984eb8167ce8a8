"""Clients that work while the releases of a cluster change: they produce, read, and change
settings.

Each part notes what it was told, and says at the end whether that holds.
"""

import asyncio
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count, cycle

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from quorate.client.results import NewTopic
from quorate.testing import RunningCluster
from quorate_proto.v1 import errors_pb2
from tests.support.acked_load import (
    AckedLoad,
    acked_load,
    assert_nothing_lost,
    assert_nothing_twice,
    assert_order_kept,
    consume_all,
)
from tests.support.forwarded_changes import (
    CREATE_ACLS,
    INCREMENTAL,
    QUOTAS,
    endpoint,
    error_codes,
    quota,
    reader,
    setting,
    written,
)
from tests.support.kafka_wire import Values, WireClient, read_answer, request_frame, sized
from tests.support.waiting import wait_until

IDEMPOTENT, PLAIN = "idempotent", "plain"
RIGHTS = "no-topic"
"""The topic that entries of access control are about. Nobody uses it."""

PARTITIONS = 3
CHANGE_EVERY_S = 0.05
CHANGE_TIMEOUT_S = 15.0
ALTER_CONFIGS = 33
PREFIX = "change-"
TRY_AGAIN = frozenset(
    {errors_pb2.REQUEST_TIMED_OUT, errors_pb2.NOT_CONTROLLER, errors_pb2.BROKER_NOT_AVAILABLE}
)
"""A change that is answered so may be made nevertheless, and is made once at most."""


@dataclass
class Changes:
    """The outcome of the changes that were asked for, by the client id of each."""

    made: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)
    refused: dict[str, list[int]] = field(default_factory=dict)
    brokers: Counter[int] = field(default_factory=Counter)
    """The number of changes made that each broker was asked for."""


class Changer:
    """Asks one broker after the other for a change that nobody else asks for, until stopped."""

    def __init__(self, cluster: RunningCluster) -> None:
        self.changes = Changes()
        self._cluster = cluster
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="changer")
        self._numbers = count()

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join(2 * CHANGE_TIMEOUT_S)

    def wait_for_more(self, number: int) -> None:
        """Wait until so many more changes were made through every broker."""
        before = Counter(self.changes.brokers)
        wait_until(
            lambda: all(
                self.changes.brokers[one] - before[one] >= number
                for one in self._cluster.broker_ids
            ),
            lambda: f"{number} more changes by each broker: {self.changes.brokers - before}",
        )

    def assert_each_once(self) -> None:
        """Check that what was acknowledged is in the metadata log once, what is uncertain once at
        most, and what was refused not at all."""
        assert not self._thread.is_alive(), "the changer did not stop"
        changes = self.changes
        times: dict[str, int] = {}

        def missing() -> set[str]:
            """The broker that says how far the log goes may not have heard of its end yet."""
            nonlocal times
            log = written(self._cluster, PREFIX)
            times = {name: len(operations) for name, operations in log.items()}
            return changes.made - set(times)

        wait_until(
            lambda: not missing(),
            lambda: f"all acknowledged changes in the log: {missing()} are not",
            timeout_s=CHANGE_TIMEOUT_S,
        )
        assert not changes.refused
        assert {name: number for name, number in times.items() if number > 1} == {}
        assert set(times) <= changes.made | changes.unknown

    def _run(self) -> None:
        brokers = cycle(self._cluster.broker_ids)
        while not self._stop.wait(CHANGE_EVERY_S):
            broker_id = next(brokers)
            if self._cluster.broker_pid(broker_id) is not None:
                self._change(broker_id, next(self._numbers))

    def _change(self, broker_id: int, number: int) -> None:
        client_id = f"{PREFIX}{number}"
        changes = self.changes
        try:
            codes = asyncio.run(asked(self._cluster, broker_id, client_id, *_change_number(number)))
        except (OSError, TimeoutError, EOFError, asyncio.IncompleteReadError):
            changes.unknown.add(client_id)
            return
        if set(codes) == {errors_pb2.NONE}:
            changes.made.add(client_id)
            changes.brokers[broker_id] += 1
        elif TRY_AGAIN.issuperset(codes):
            changes.unknown.add(client_id)
        else:
            changes.refused[client_id] = codes


async def asked(
    cluster: RunningCluster, broker_id: int, client_id: str, key: int, version: int, values: Values
) -> list[int]:
    """Return the error codes with which the broker answers that request."""
    async with asyncio.timeout(CHANGE_TIMEOUT_S):
        client = await WireClient.connect(endpoint(cluster, broker_id))
        try:
            client.send_bytes(sized(request_frame(key, version, values, client_id=client_id)))
            _, answer = read_answer(key, version, await client.answer())
        finally:
            await client.close()
    return error_codes(answer)


def _change_number(number: int) -> tuple[int, int, Values]:
    """Return API, version and request of one change: of a topic, of rights, or of a quota."""
    match number % 4:
        case 0:
            return INCREMENTAL, 1, setting(PLAIN, max_message_bytes=str(1_000_000 + number))
        case 1:
            return CREATE_ACLS, 3, {"creations": [reader(f"User:{PREFIX}{number}", RIGHTS)]}
        case 2:
            return QUOTAS, 1, quota(f"{PREFIX}{number}", producer_byte_rate=1e9 + number)
        case _:
            resource = {
                "resource_type": 2,
                "resource_name": IDEMPOTENT,
                "configs": [{"name": "max.message.bytes", "value": str(1_000_000 + number)}],
            }
            return ALTER_CONFIGS, 2, {"resources": [resource], "validate_only": False}


class LiveReader:
    """Reads a topic from the beginning while it is written to, and notes the order of offsets."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.keys: dict[int, list[tuple[int, bytes]]] = defaultdict(list)
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"reader-of-{topic}",
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        self._consumer.assign(
            [TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(PARTITIONS)]
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="live-reader")

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        if not self._stop.is_set():
            self._stop.set()
            self._thread.join(CHANGE_TIMEOUT_S)
            self._consumer.close()

    def wait_for(self, number: int) -> None:
        """Wait until so many records have been read."""
        wait_until(lambda: self._read() >= number, lambda: f"{number} records: {self._read()}")

    def assert_read_once_in_order(self) -> None:
        """Each offset was read once, and none after a later one."""
        for partition, read in self.keys.items():
            offsets = [offset for offset, _ in read]
            assert offsets == sorted(set(offsets)), f"partition {partition} was read out of order"

    def _read(self) -> int:
        return sum(map(len, self.keys.values()))

    def _run(self) -> None:
        while not self._stop.is_set():
            for message in self._consumer.consume(500, timeout=0.1):
                if message.error() is None:
                    partition, offset, key = message.partition(), message.offset(), message.key()
                    assert partition is not None
                    assert offset is not None
                    self.keys[partition].append((offset, key or b""))


class Traffic:
    """Two producers, a consumer and an administrator of one cluster."""

    def __init__(
        self,
        cluster: RunningCluster,
        loads: dict[str, AckedLoad],
        live: LiveReader,
        changer: Changer,
    ) -> None:
        self._cluster = cluster
        self._loads, self._live, self._changer = loads, live, changer

    def go_on(self, records: int = 20, changes: int = 2) -> None:
        """Wait until each producer and each broker's administrator has got so much further."""
        for load in self._loads.values():
            load.wait_for_more(records)
        self._changer.wait_for_more(changes)

    def end(self) -> None:
        """Stop, and hold what clients were told against what the cluster has."""
        self._changer.close()
        for topic, load in self._loads.items():
            acknowledged = load.stop()
            assert not acknowledged.failures
            consumed = consume_all(self._cluster.bootstrap, topic, PARTITIONS)
            assert_nothing_lost(acknowledged, consumed)
            if topic == IDEMPOTENT:
                assert_nothing_twice(consumed)
                assert_order_kept(acknowledged)
                self._live.wait_for(sum(map(len, consumed.values())))
        self._live.close()
        self._live.assert_read_once_in_order()
        self._changer.assert_each_once()


@contextmanager
def traffic(cluster: RunningCluster) -> Iterator[Traffic]:
    """Create the topics, and let clients work until the test ends them."""
    with cluster.admin() as admin:
        new = [
            NewTopic(
                name=name, num_partitions=PARTITIONS, replication_factor=len(cluster.broker_ids)
            )
            for name in (IDEMPOTENT, PLAIN)
        ]
        for result in admin.create_topics(new):
            result.raise_for_error()
    with ExitStack() as running:
        bootstrap = cluster.bootstrap
        loads = {
            name: running.enter_context(
                acked_load(
                    bootstrap,
                    name,
                    PARTITIONS,
                    every_s=0.005,
                    enable_idempotence=name == IDEMPOTENT,
                )
            )
            for name in (IDEMPOTENT, PLAIN)
        }
        live = LiveReader(bootstrap, IDEMPOTENT)
        changer = Changer(cluster)
        running.callback(live.close)
        running.callback(changer.close)
        live.start()
        changer.start()
        yield Traffic(cluster, loads, live, changer)
