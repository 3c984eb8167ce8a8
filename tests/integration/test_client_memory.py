"""Many and hostile clients: memory stays within what is configured, and others are served."""

import os
import resource
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from quorate.client.results import NewTopic
from quorate.testing import RunningCluster, running_cluster
from tests.integration.test_metrics import scrape
from tests.support.kafka_wire import fetching, request_frame, sized
from tests.support.waiting import let_time_pass
from tests.support.whole_cluster import wait_until_known

pytestmark = pytest.mark.integration

REQUEST_BYTES = 32 << 20
RESPONSE_BYTES = 32 << 20
FRAME_BYTES = 100 << 20
PARTITIONS = 16
IDLE_CONNECTIONS = 2_000
IDLE_BYTES_EACH = 16 << 10
SLACK_BYTES = 128 << 20
"""What the allocator keeps, and the log's own buffers, which the load before has not filled."""
BOUND_BYTES = REQUEST_BYTES + FRAME_BYTES + RESPONSE_BYTES + SLACK_BYTES

API_VERSIONS = sized(request_frame(18, 0, b""))
FETCH = sized(
    request_frame(
        1, 12, fetching(partitions=tuple(range(PARTITIONS)), max_bytes=50 << 20, max_wait_ms=100)
    )
)


@pytest.fixture
def cluster() -> Iterator[RunningCluster]:
    """A broker that is begun with few files allowed, as shells have it, and a test with many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1_024, hard))
    try:
        with running_cluster(
            queued_max_request_bytes=REQUEST_BYTES,
            queued_max_response_bytes=RESPONSE_BYTES,
            socket_request_max_bytes=FRAME_BYTES,
            log_flush="os",
            log_segment_bytes=8 << 20,
        ) as cluster:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            yield cluster
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def resident_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize()


@contextmanager
def watched(pid: int) -> Iterator[list[int]]:
    """The resident memory of ``pid``, looked at all the time."""
    seen = [resident_bytes(pid)]
    done = threading.Event()

    def look() -> None:
        while not done.wait(0.02):
            seen.append(resident_bytes(pid))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        done.set()
        thread.join()


class Peers:
    """Sockets to one broker that do what no client should."""

    def __init__(self, address: str, cleanup: ExitStack) -> None:
        host, _, port = address.rpartition(":")
        self._at = (host, int(port))
        self._cleanup = cleanup

    def connect(self) -> socket.socket:
        return self._cleanup.enter_context(socket.create_connection(self._at, timeout=60))

    def idle(self) -> list[socket.socket]:
        """Connections that were served once and say nothing more."""
        peers = [self.connect() for _ in range(IDLE_CONNECTIONS)]
        for peer in peers:
            peer.sendall(API_VERSIONS)
        for peer in peers:
            assert peer.recv(1 << 16)
        return peers

    def never_reading(self) -> socket.socket:
        """One that asks for far more than it may get, and reads nothing."""
        peer = self.connect()
        peer.sendall(FETCH * 20)
        return peer

    def stopped_within_a_request(self) -> socket.socket:
        """One that announces 100 MiB and sends as much of 90 MiB as is taken."""
        peer = self.connect()
        peer.setblocking(False)
        data = memoryview(struct.pack(">i", FRAME_BYTES) + bytes(90 << 20))
        tries = 0
        while data and tries < 20:
            try:
                data = data[peer.send(data) :]
            except BlockingIOError:
                tries += 1
                let_time_pass(0.02, "the broker may take more")
        return peer

    def slowly_reading(self, done: threading.Event) -> threading.Thread:
        """One that fetches all the time and takes 4 KiB of it at a time."""
        peer = self.connect()
        peer.settimeout(1)
        peer.sendall(FETCH * 20)

        def read() -> None:
            with suppress(OSError):
                while not done.wait(0.01) and peer.recv(4096):
                    pass

        thread = threading.Thread(target=read)
        thread.start()
        return thread

    def large_request(self, answers: list[bytes]) -> threading.Thread:
        """A whole request of 100 MiB; what came back is added to ``answers``."""
        peer = self.connect()
        produce = request_frame(0, 3, _produce_body(FRAME_BYTES - 100))

        def ask() -> None:
            peer.sendall(sized(produce))
            answers.append(peer.recv(1 << 16))

        thread = threading.Thread(target=ask)
        thread.start()
        return thread


def _produce_body(records_bytes: int) -> bytes:
    """Of a Produce request of version 3 to partition 0 of ``t``; its records are zeros."""
    head = struct.pack(">hhiih1sii", -1, -1, 30_000, 1, 1, b"t", 1, 0)
    return head + struct.pack(">i", records_bytes) + bytes(records_bytes)


class Client:
    """A normal one: what it produces it consumes."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "g", "fetch.wait.max.ms": 100}
        )
        self._consumer.assign([TopicPartition("normal", 0, 0)])

    def fill(self, topic: str, partitions: int, count: int) -> None:
        """``count`` batches of about 1 MiB into each partition."""
        for _ in range(count):
            for partition in range(partitions):
                self._producer.produce(topic, bytes(990_000), partition=partition)
            assert self._producer.flush(60) == 0

    def round_trips(self, count: int) -> None:
        """Each record is acknowledged, and consumed, before the next one is produced."""
        for _ in range(count):
            value = os.urandom(10_000)
            self._producer.produce("normal", value, partition=0)
            assert self._producer.flush(60) == 0
            message = self._consumer.poll(60)
            assert message is not None
            assert message.error() is None
            assert message.value() == value

    def close(self) -> None:
        self._consumer.close()


def closed_for_memory(cluster: RunningCluster) -> float:
    """How many connections the broker has closed because others needed what they held."""
    figures = scrape(cluster)["broker-1", "quorate_connections_closed_total"]
    return sum(value for labels, value in figures if labels["reason"] == "memory")


@pytest.mark.slow
def test_memory_stays_bounded_and_others_are_served_whatever_clients_do(
    cluster: RunningCluster,
) -> None:
    with cluster.admin() as admin:
        for name, count in (("t", PARTITIONS), ("normal", 1)):
            new = NewTopic(name=name, num_partitions=count, replication_factor=1)
            admin.create_topics([new])[0].raise_for_error()
            wait_until_known(cluster, name, count)
    pid = cluster.broker_pid(1)
    assert pid is not None
    with ExitStack() as cleanup:
        client = Client(cluster.bootstrap)
        cleanup.callback(client.close)
        client.fill("t", PARTITIONS, 9)
        client.round_trips(5)
        base_bytes = resident_bytes(pid)
        peers = Peers(cluster.bootstrap, cleanup)
        done, answers = threading.Event(), list[bytes]()
        seen = cleanup.enter_context(watched(pid))
        idle = peers.idle()
        assert resident_bytes(pid) - base_bytes < IDLE_CONNECTIONS * IDLE_BYTES_EACH
        never_reading = [peers.never_reading() for _ in range(20)]
        client.round_trips(5)
        stopped = [peers.stopped_within_a_request() for _ in range(3)]
        threads = [peers.slowly_reading(done) for _ in range(10)]
        threads.append(peers.large_request(answers))
        client.round_trips(20)
        threads.pop().join(60)
        done.set()
        for thread in threads:
            thread.join()
        assert answers[0]
        assert max(seen) - base_bytes < BOUND_BYTES
        assert 0 < closed_for_memory(cluster) <= len(never_reading) + len(stopped)
        for peer in idle[:: IDLE_CONNECTIONS // 20]:
            peer.sendall(API_VERSIONS)
            assert peer.recv(1 << 16)
        client.round_trips(5)
