"""Declares what the quorum benchmark asks of Quorate and of its peers: a cluster of three, and
clients.

All write the same: a key of 20 bytes, one of ``KEYS``, and a value of ``VALUE_BYTES``.
"""

import os
import signal
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Final

NODES: Final = (1, 2, 3)
KEYS: Final = 1_000
VALUE_BYTES: Final = 200
LEAVES: Final = 10_000
"""leaderAndISR records that are updated in one call."""

_PADDING: Final = "v" * VALUE_BYTES


class Unavailable(Exception):
    """A peer is not installed; the message says what was looked for."""


def key(number: int) -> str:
    """20 characters."""
    return f"/bench/key-{number % KEYS:09d}"


def value(number: int) -> str:
    """``VALUE_BYTES`` characters that differ from write to write."""
    return f"{number:010d}{_PADDING}"[:VALUE_BYTES]


def leaf_key(number: int) -> str:
    """Return the path at which a peer keeps the state of one partition."""
    return f"/leaf/{number:06d}"


def leaf_value(number: int, version: int) -> str:
    """The state of one partition as Kafka keeps it in ZooKeeper, near 100 bytes."""
    return (
        f'{{"controller_epoch":1,"leader":{number % 3 + 1},"version":1,"leader_epoch":{version},'
        f'"isr":[1,2,3],"partition":{number}}}'
    )


class Client(ABC):
    """One client process's way to write, pipelined as well as its library allows."""

    @abstractmethod
    async def close(self) -> None:
        """Drop the connections."""

    @abstractmethod
    async def write_for(self, seconds: float, in_flight: int) -> list[float]:
        """Write with ``in_flight`` writes open at any time; latency of each acknowledged, in ms.

        Raises:
            Exception: a write failed.
        """


class BatchClient(Client):
    """A client that can also write many records by one call."""

    @abstractmethod
    async def update_leaves(self, version: int) -> float:
        """Change ``LEAVES`` states in one call; ms from what to write to its acknowledgement.

        ``version``: one more than before, from 1.
        """


class Cluster(ABC):
    """Three nodes on loopback, each a process; data and logs in a folder of its own."""

    name: str

    @property
    @abstractmethod
    def pids(self) -> Mapping[int, int]:
        """Process ids of the running nodes, by node."""

    @abstractmethod
    async def start(self) -> None:
        """Start all nodes, and wait until they serve."""

    @abstractmethod
    async def stop(self) -> None:
        """Stop all nodes."""

    @abstractmethod
    def start_node(self, node: int) -> None:
        """Start one node, without waiting."""

    @abstractmethod
    def kill(self, node: int) -> None:
        """kill -9."""

    def pause(self, node: int) -> None:
        """SIGSTOP: silent, as if its cable were pulled."""
        os.kill(self.pids[node], signal.SIGSTOP)

    def resume(self, node: int) -> None:
        """SIGCONT."""
        os.kill(self.pids[node], signal.SIGCONT)

    @abstractmethod
    def leader(self) -> int:
        """The node that leads."""

    @abstractmethod
    def is_caught_up(self, node: int) -> bool:
        """Whether the node serves and has applied all that is committed."""

    @abstractmethod
    async def connect(self) -> Client:
        """A client of the node that leads now: the library that programs use."""

    async def connect_bare(self) -> Client | None:
        """One that costs as little as can be, if it is not the same."""
        return None

    @abstractmethod
    async def create_keys(self) -> None:
        """Make all keys, before the first ``write_for``."""

    @abstractmethod
    async def create_leaves(self, count: int) -> None:
        """Make the states of ``count`` partitions, a multiple of ``LEAVES``; once."""

    @abstractmethod
    async def write_through(self) -> None:
        """One write, tried until it is acknowledged, whoever leads by then.

        Not by ``connect``'s client: how fast a library reconnects is not the question.
        """


def keys() -> list[tuple[str, str]]:
    """All keys with their first values."""
    return [(key(number), value(number)) for number in range(KEYS)]


def leaves(count: int, version: int) -> Iterator[list[tuple[str, str]]]:
    """The states of ``count`` partitions and where to keep them, ``LEAVES`` at a time."""
    for first in range(0, count, LEAVES):
        numbers = range(first, first + LEAVES)
        yield [(leaf_key(number), leaf_value(number, version)) for number in numbers]
