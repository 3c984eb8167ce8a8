"""Declares what every client's load has in common: a name, a topic, and figures of one run."""

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from bench._support import percentile
from bench.peers.processes import cpu_seconds

PARTITIONS: Final = 12
_GB: Final = 1e9

Figures = dict[str, float]


class Target(NamedTuple):
    """The topic of a running cluster that a load is for. ``pids``: of all its server processes."""

    bootstrap: str
    topic: str
    pids: Sequence[int]


class Load(Protocol):
    """One row of the bench. It can be pickled, and knows how long it runs."""

    @property
    def name(self) -> str:
        """The name of the row, which ``--rows`` matches, and which topics carry."""

    @property
    def partitions(self) -> int:
        """The number of partitions that the topic is to have."""

    def measure(self, target: Target) -> Figures:
        """Run once against an empty topic."""


class ServersCost:
    """The CPU time of the servers since this was made."""

    def __init__(self, target: Target) -> None:
        self._pids = target.pids
        self._before_s = cpu_seconds(target.pids)

    def per_gigabyte(self, payload_bytes: float) -> Figures:
        """Seconds of CPU for each GB of values."""
        return {"servers CPU s/GB": self._spent_s() / payload_bytes * _GB}

    def per_record(self, records: int) -> Figures:
        """Microseconds of CPU for each record; where records are few, bytes say little."""
        return {"servers CPU us/record": self._spent_s() / records * 1e6}

    def _spent_s(self) -> float:
        return cpu_seconds(self._pids) - self._before_s


def latencies(values_ms: Sequence[float]) -> Figures:
    """The two percentiles of latency that every row has."""
    return {"p50 ms": percentile(values_ms, 0.5), "p99 ms": percentile(values_ms, 0.99)}
