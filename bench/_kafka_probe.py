"""Asks a broker who leads its partitions, and whether they take records, in raw and cheap requests.

A client library would add its own refresh intervals and back-offs to what is measured; here a
question costs its bytes. Everything goes through the brokers' Kafka listeners, as clients do.
"""

import struct
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from tests.support.raw_client import RawClient, record_batch, string

METADATA, METADATA_VERSION = 3, 1
PRODUCE, PRODUCE_VERSION = 0, 3
PARTITIONS_PER_PRODUCE: Final = 2_000
PRODUCE_TIMEOUT_MS: Final = 5_000

Leaders = dict[str, list[int]]
"""Leader per partition, by topic; -1: none. A topic that the broker does not know is left out."""


class Replica(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int


class BrokerProbe:
    """One connection to one broker; reconnects by itself. For one thread."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._client: RawClient | None = None

    def close(self) -> None:
        if self._client is not None:
            self._client.__exit__()
            self._client = None

    def leaders(self, topics: Collection[str]) -> Leaders:
        """Return the leaders of ``topics`` as the broker tells them.

        Raises:
            OSError: it does not answer.
        """
        body = struct.pack(">i", len(topics)) + b"".join(map(string, topics))
        return parse_leaders(self._call(METADATA, METADATA_VERSION, body))

    def refused(self, replicas: Sequence[Replica], *, acks: int = -1) -> list[Replica]:
        """Produce one record to each; those that did not take it.

        Raises:
            OSError: the broker does not answer.
        """
        failed: list[Replica] = []
        for first in range(0, len(replicas), PARTITIONS_PER_PRODUCE):
            part = replicas[first : first + PARTITIONS_PER_PRODUCE]
            answer = self._call(PRODUCE, PRODUCE_VERSION, produce_request(part, acks))
            failed += [replica for replica, code in parse_produced(answer) if code]
        return failed

    def _call(self, key: int, version: int, body: bytes) -> bytes:
        try:
            if self._client is None:
                self._client = RawClient(self.address)
            return self._client.call(key, version, body)
        except (OSError, struct.error) as error:
            self.close()
            raise OSError(f"broker at {self.address}: {error}") from error


def produce_request(replicas: Iterable[Replica], acks: int) -> bytes:
    """Produce v3: one record of one byte for each."""
    records = bytes(record_batch(b"x"))
    record_set = struct.pack(">i", len(records)) + records
    by_topic: dict[str, list[int]] = {}
    for topic, partition in replicas:
        by_topic.setdefault(topic, []).append(partition)
    parts = [struct.pack(">hhii", -1, acks, PRODUCE_TIMEOUT_MS, len(by_topic))]
    for topic, numbers in by_topic.items():
        parts += (string(topic), struct.pack(">i", len(numbers)))
        for number in numbers:
            parts += (struct.pack(">i", number), record_set)
    return b"".join(parts)


def parse_produced(answer: bytes) -> Iterator[tuple[Replica, int]]:
    """Error code per partition of a Produce v3 answer."""
    (topics,) = struct.unpack_from(">i", answer)
    at = 4
    for _ in range(topics):
        topic, at = _text(answer, at)
        (partitions,) = struct.unpack_from(">i", answer, at)
        at += 4
        for number, code, _, _ in struct.iter_unpack(">ihqq", answer[at : at + 22 * partitions]):
            yield Replica(topic, number), code
        at += 22 * partitions


def parse_leaders(answer: bytes) -> Leaders:
    """Leaders in a Metadata v1 answer."""
    (brokers,) = struct.unpack_from(">i", answer)
    at = 4
    for _ in range(brokers):
        _, at = _text(answer, at + 4)
        _, at = _text(answer, at + 4)
    (topics,) = struct.unpack_from(">i", answer, at + 4)
    at += 8
    found: Leaders = {}
    for _ in range(topics):
        (error,) = struct.unpack_from(">h", answer, at)
        name, at = _text(answer, at + 2)
        (partitions,) = struct.unpack_from(">i", answer, at + 1)
        at += 5
        leaders = [-1] * partitions
        for _ in range(partitions):
            _, number, leader, replicas = struct.unpack_from(">hiii", answer, at)
            at += 14 + 4 * replicas
            (isr,) = struct.unpack_from(">i", answer, at)
            at += 4 + 4 * isr
            leaders[number] = leader
        if not error:
            found[name] = leaders
    return found


def _text(answer: bytes, at: int) -> tuple[str, int]:
    """A nullable string, and where it ends."""
    (length,) = struct.unpack_from(">h", answer, at)
    end = at + 2 + max(0, length)
    return answer[at + 2 : end].decode(), end
