"""Reads by bare Fetch requests: what brokers can give, without what a client makes of it."""

import socket
import struct
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, NamedTuple

from bench._kafka_load import in_own_process
from bench._kafka_producers import sample_values
from bench.client_loads.load import Figures, ServersCost, Target, latencies
from bench.produce_matrix.workload import Workload
from tests.support.raw_client import FETCH, FETCH_VERSION, frame, string

_TIMEOUT_S: Final = 60.0
_MAX_WAIT_MS: Final = 500
_FETCH_MAX_BYTES: Final = 50 << 20
_PARTITION_MAX_BYTES: Final = 1 << 20
"""Java's consumer asks for as much by default."""
_ROOM_BYTES: Final = _FETCH_MAX_BYTES + (1 << 20)
_BATCHES_AT_ONCE: Final = 32
_WARM_UP_S: Final = 0.3
_WORKLOAD: Final = Workload()
"""The kind of batches that are read: 1,000-byte records in 64 KiB."""
_BATCH: Final = struct.Struct(">qi")
_BATCH_HEADER_BYTES: Final = 12
_LAST_OFFSET_DELTA_AT: Final = 23


@dataclass(frozen=True)
class BareFetch:
    """A connection to each leader, which asks for all its partitions, one request after another,
    from their beginnings to their ends and over again. Latency is that of a request."""

    seconds: float
    partitions: int
    megabytes: int

    @property
    def name(self) -> str:
        return f"bare-fetch-{self.partitions}p"

    def measure(self, target: Target) -> Figures:
        """Fill the topic and read it, each in a process of its own.

        Raises:
            RuntimeError: a record was not acknowledged, or a request was answered by an error.
        """
        in_own_process(self._fill, target)
        return in_own_process(self._read, target)

    @property
    def _batches_per_partition(self) -> int:
        return max(1, self.megabytes * 1_000_000 // _WORKLOAD.payload_bytes // self.partitions)

    def _fill(self, target: Target) -> None:
        from confluent_kafka import Producer

        records = _WORKLOAD.records_per_batch
        producer = Producer(
            {
                "bootstrap.servers": target.bootstrap,
                "acks": "all",
                "batch.num.messages": records,
                "batch.size": 4 * _WORKLOAD.payload_bytes,
                "linger.ms": 1_000,
                "queue.buffering.max.messages": 1_000_000,
                "log_level": 0,
            }
        )
        messages: list[dict[str, object]] = [
            {"value": value} for value in sample_values(records, _WORKLOAD.record_bytes)
        ]
        for number in range(self._batches_per_partition * self.partitions):
            producer.produce_batch(target.topic, messages, partition=number % self.partitions)
            if number % _BATCHES_AT_ONCE == 0 and producer.flush(_TIMEOUT_S):
                break
        if left := producer.flush(_TIMEOUT_S):
            raise RuntimeError(f"{left} records are not acknowledged")

    def _read(self, target: Target) -> Figures:
        records = _WORKLOAD.records_per_batch
        readers = [
            LeaderReader(address, target.topic, numbers, self._batches_per_partition * records)
            for address, numbers in _leaders(target).items()
        ]
        with ThreadPoolExecutor(len(readers)) as threads:
            list(threads.map(lambda reader: reader.read(_WARM_UP_S), readers))
            cost, begin = ServersCost(target), time.perf_counter()
            reads = list(threads.map(lambda reader: reader.read(self.seconds), readers))
            elapsed_s = time.perf_counter() - begin
            payload_bytes = sum(read.records for read in reads) * _WORKLOAD.record_bytes
            figures = cost.per_gigabyte(payload_bytes)
        return {
            "MB/s": payload_bytes / elapsed_s / 1e6,
            "records/s": sum(read.records for read in reads) / elapsed_s,
            **latencies([each for read in reads for each in read.latencies_ms]),
            **figures,
        }


class Read(NamedTuple):
    """The yield of one reader: records of complete batches, and how long each request took."""

    records: int
    latencies_ms: list[float]


class LeaderReader:
    """One connection to the leader of some partitions, for one thread."""

    def __init__(self, address: str, topic: str, partitions: Sequence[int], end: int) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=_TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._topic = topic
        self._offsets = dict.fromkeys(partitions, 0)
        self._end = end
        self._room = memoryview(bytearray(_ROOM_BYTES))

    def read(self, seconds: float) -> Read:
        """Fetch for a while.

        Raises:
            RuntimeError: a partition was answered with an error, or with no complete batch.
        """
        records, latencies_ms = 0, []
        end = time.perf_counter() + seconds
        while (begin := time.perf_counter()) < end:
            self._socket.sendall(fetch_request(self._topic, self._offsets))
            answer = self._receive()
            latencies_ms.append((time.perf_counter() - begin) * 1000)
            records += self._advance(answer)
        return Read(records, latencies_ms)

    def _advance(self, answer: memoryview) -> int:
        got = 0
        for partition, error, batches in parse_fetched(answer):
            if error:
                raise RuntimeError(f"partition {partition} was answered with error {error}")
            offset = self._offsets[partition]
            following = offset_after(batches, offset)
            got += following - offset
            self._offsets[partition] = 0 if following >= self._end else following
        if not got:
            raise RuntimeError(f"no complete batch came; offsets {self._offsets}")
        return got

    def _receive(self) -> memoryview:
        size_field = self._fill(4)
        (size,) = struct.unpack(">i", size_field)
        return self._fill(size)[4:]

    def _fill(self, count: int) -> memoryview:
        room = self._room[:count]
        at = 0
        while at < count:
            received = self._socket.recv_into(room[at:])
            if not received:
                raise ConnectionResetError("the broker closed the connection")
            at += received
        return room


def fetch_request(topic: str, offsets: dict[int, int]) -> bytes:
    """A whole Fetch v4 request for all the partitions."""
    header = struct.pack(">hhi", FETCH, FETCH_VERSION, 0) + string("bench")
    body = struct.pack(">iiiibi", -1, _MAX_WAIT_MS, 1, _FETCH_MAX_BYTES, 0, 1) + string(topic)
    body += struct.pack(">i", len(offsets))
    for partition, offset in offsets.items():
        body += struct.pack(">iqi", partition, offset, _PARTITION_MAX_BYTES)
    return frame(header + body)


def parse_fetched(answer: memoryview) -> Iterator[tuple[int, int, memoryview]]:
    """Partition, error code and batches of each partition in a Fetch v4 answer for one topic."""
    (name_bytes,) = struct.unpack_from(">h", answer, 8)
    at = 10 + name_bytes
    (partitions,) = struct.unpack_from(">i", answer, at)
    at += 4
    for _ in range(partitions):
        partition, error, _, _, aborted = struct.unpack_from(">ihqqi", answer, at)
        at += 26 + 16 * max(0, aborted)
        (size,) = struct.unpack_from(">i", answer, at)
        at += 4
        yield partition, error, answer[at : at + max(0, size)]
        at += max(0, size)


def offset_after(batches: memoryview, offset: int) -> int:
    """The offset that follows the last complete batch; ``offset`` if there is none.

    A broker may cut the last batch off where the response was full.
    """
    at = 0
    while at + _BATCH_HEADER_BYTES <= len(batches):
        base_offset, length = _BATCH.unpack_from(batches, at)
        if at + _BATCH_HEADER_BYTES + length > len(batches):
            break
        (last_delta,) = struct.unpack_from(">i", batches, at + _LAST_OFFSET_DELTA_AT)
        offset = base_offset + last_delta + 1
        at += _BATCH_HEADER_BYTES + length
    return offset


def _leaders(target: Target) -> dict[str, list[int]]:
    """The topic's partitions by the address of their leader."""
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": target.bootstrap, "log_level": 0})
    metadata = admin.list_topics(target.topic, timeout=_TIMEOUT_S)
    found: dict[str, list[int]] = {}
    for number, partition in metadata.topics[target.topic].partitions.items():
        broker = metadata.brokers[partition.leader]
        found.setdefault(f"{broker.host}:{broker.port}", []).append(number)
    return found
