"""Sends cases to a broker beside the well-behaved clients, and measures what each of them does."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final, NamedTuple

from bench._support import percentile
from bench.hostile_requests.attack import describe, send_all
from bench.hostile_requests.broker_log import BrokerLog
from bench.hostile_requests.cases import Case
from bench.hostile_requests.good_clients import GoodClients, Sample, good_clients
from bench.hostile_requests.wire import Wire
from bench.hostile_requests.world import log_path, world
from bench.peers.processes import cpu_seconds
from bench.slow_consumers import PeakMemory
from quorate.broker.config.listeners import (
    QUEUED_MAX_REQUEST_BYTES,
    QUEUED_MAX_RESPONSE_BYTES,
    SOCKET_REQUEST_MAX_BYTES,
)
from quorate.client.errors import QuorateError
from quorate.testing import RunningCluster

CASE_TIMEOUT_S: Final = 30.0
SETTLE_TIMEOUT_S: Final = 15.0
_KILL_MB: Final = 2_500.0
"""A broker that holds more is killed: it would take the machine with it."""
_IDLE_CPU: Final = 0.35
"""A broker that uses less of a core than this works on nothing but the good clients' requests."""
_PATIENCE_S: Final = 1.0
_QUIET_MS: Final = 40.0
_QUIET_TIMEOUT_S: Final = 1.5
_OF_THE_BROKER: Final = 0.25
"""A stall during which the broker used less of a core than this may be the machine's."""
BASELINE_S: Final = 3.0


class Office(NamedTuple):
    """The state that must not change: the brokers' sessions, and who is the controller."""

    broker_epochs: tuple[int, ...]
    controller_id: int
    controller_epoch: int


@dataclass(frozen=True)
class Limits:
    """The limits above which a case counts as harmful. ``memory_mb`` is above what the broker held
    before."""

    p99_ms: float = 50.0
    max_ms: float = 250.0
    memory_mb: float = float("inf")


@dataclass(frozen=True)
class Result:
    """The outcome of one case: what the good clients saw, and what the broker spent."""

    case: Case
    connections: int
    outcome: str
    samples: list[Sample]
    elapsed_s: float
    cpu_s: float
    """The broker's processor time in seconds. Time that it did not use cannot have kept others
    waiting."""
    peak_mb: float
    left_mb: float
    """Memory above the base: at most, and once the good clients were served again."""
    session_kept: bool
    faults: tuple[str, ...]

    @property
    def worst_ms(self) -> float:
        return max((sample.latency_ms for sample in self.samples), default=0.0)

    @property
    def failed(self) -> int:
        return sum(sample.failed for sample in self.samples)

    def may_be_noise(self, limits: Limits) -> bool:
        """Whether the machine alone may have kept the others waiting."""
        sound = self.session_kept and not self.failed and self.peak_mb <= limits.memory_mb
        return sound and self.cpu_s < _OF_THE_BROKER * self.worst_ms / 1_000

    def exceeds(self, limits: Limits) -> list[str]:
        """Return a phrase for each limit that the case exceeded."""
        found = []
        if self.worst_ms > limits.max_ms:
            found.append(f"others waited {self.worst_ms:.0f} ms")
        if self.failed:
            found.append(f"{self.failed} records of others were refused")
        if self.peak_mb > limits.memory_mb:
            found.append(f"{self.peak_mb:.0f} MB")
        if not self.session_kept:
            found.append("the session was lost")
        return found


def bound_mb(settings: Mapping[str, object]) -> tuple[float, str]:
    """The memory that clients may make a broker hold, and what it is the sum of.

    While requests have no memory left, one frame may still grow to its end; decoded elements have a
    quarter of the memory for requests.
    """
    keys = (QUEUED_MAX_REQUEST_BYTES, SOCKET_REQUEST_MAX_BYTES, QUEUED_MAX_RESPONSE_BYTES)
    sizes = {key.name: int(str(settings.get(key.name, key.default))) / 1e6 for key in keys}
    sizes["elements"] = sizes[QUEUED_MAX_REQUEST_BYTES.name] / 4
    text = " + ".join(f"{name} ({size:.0f} MB)" for name, size in sizes.items())
    return sum(sizes.values()), text


class Arena:
    """A cluster under attack. ``arena`` makes it."""

    def __init__(self, cluster: RunningCluster, good: GoodClients) -> None:
        self._cluster = cluster
        self._good = good
        pid = cluster.broker_pid(1)
        assert pid is not None
        self._pid = pid
        self._log = BrokerLog(log_path(cluster, 1))
        self._memory = PeakMemory(pid)
        self.base_mb = self._memory.now_mb()
        self._last_cpu_s = 0.0
        self._office = self._now_in_office()
        self.is_damaged = False

    def quiet(self, seconds: float = BASELINE_S) -> list[Sample]:
        """The good clients without anybody else."""
        begin_s = time.monotonic()
        time.sleep(seconds)
        return self._good.between(begin_s, time.monotonic())

    def run(self, case: Case, connections: int = 1) -> Result:
        """Send the request over so many connections, and wait until the good clients are served."""
        frame = case.frame()
        with ExitStack() as stack:
            try:
                wires = [stack.enter_context(self._connect(case)) for _ in range(connections)]
            except OSError as error:
                self.is_damaged = True
                return _not_sent(case, connections, f"no connection: {error}")
            ports = [wire.port for wire in wires]
            self._good.wait_until_quiet(_QUIET_MS, _QUIET_TIMEOUT_S)
            self._good.forget()
            self._log.skip()
            memory = PeakMemory(self._pid)
            begin_s, cpu_s = time.monotonic(), self._cpu_s()
            with memory.watched(at_most_mb=_KILL_MB):
                answers = send_all(frame, wires, Waiting(self._cpu_s, self._good), CASE_TIMEOUT_S)
                sent_s = time.monotonic()
                served = self._good.wait_for(sent_s, SETTLE_TIMEOUT_S)
        end_s = time.monotonic()
        samples = self._good.between(begin_s, end_s)
        if not served:
            samples.append(Sample(False, begin_s, end_s, True))
        outcome = describe(case, answers[0], self._log.closed(ports[0]))
        kept = served and self._is_in_office()
        self.is_damaged |= not kept
        return Result(
            case=case,
            connections=connections,
            outcome=outcome,
            samples=samples,
            elapsed_s=sent_s - begin_s,
            cpu_s=self._cpu_s() - cpu_s,
            peak_mb=memory.peak_mb - self.base_mb,
            left_mb=memory.now_mb() - self.base_mb,
            session_kept=kept,
            faults=self._log.faults(),
        )

    def _connect(self, case: Case) -> Wire:
        user = None if case.role == "stranger" else case.role
        return Wire(self._cluster.broker_address(1), user)

    def _cpu_s(self) -> float:
        """Processor time of the broker; of one that was killed, what it had used before."""
        if self._cluster.broker_pid(1) == self._pid:
            self._last_cpu_s = cpu_seconds([self._pid])
        return self._last_cpu_s

    def _now_in_office(self) -> Office | None:
        try:
            status = self._cluster.status()
        except QuorateError:
            return None
        epochs = tuple(broker.epoch for broker in status.brokers)
        return Office(epochs, status.controller_id, status.controller_epoch)

    def _is_in_office(self) -> bool:
        return self._cluster.broker_pid(1) == self._pid and self._now_in_office() == self._office


def _not_sent(case: Case, connections: int, why: str) -> Result:
    return Result(
        case=case,
        connections=connections,
        outcome=why,
        samples=[],
        elapsed_s=0.0,
        cpu_s=0.0,
        peak_mb=0.0,
        left_mb=0.0,
        session_kept=False,
        faults=(),
    )


class Waiting:
    """Whether the broker only waits: others are served, and for a while it has hardly worked."""

    def __init__(self, used_s: Callable[[], float], good: GoodClients) -> None:
        self._used_s = used_s
        self._good = good
        self._not_before_s = time.monotonic() + _PATIENCE_S
        self._marks = [(time.monotonic(), used_s())]

    def __call__(self) -> bool:
        now_s, cpu_s = time.monotonic(), self._used_s()
        recent = [mark for mark in self._marks if mark[0] > now_s - _PATIENCE_S]
        since_s, since_cpu_s = recent[0] if recent else self._marks[-1]
        self._marks = [*recent, (now_s, cpu_s)]
        if now_s < self._not_before_s or now_s - since_s < _PATIENCE_S / 2:
            return False
        is_idle = cpu_s - since_cpu_s < _IDLE_CPU * (now_s - since_s)
        return is_idle and self._good.are_served_after(now_s - _PATIENCE_S / 2)


@contextmanager
def arena(brokers: int, settings: Mapping[str, object], *, partitions: int) -> Iterator[Arena]:
    """A new cluster, and the well-behaved clients at work."""
    with world(brokers, settings, partitions=partitions) as cluster:
        addresses = [cluster.broker_address(one) for one in cluster.broker_ids]
        with good_clients(addresses, cluster.folder / "samples") as good:
            yield Arena(cluster, good)


def summary(samples: Sequence[Sample]) -> dict[str, float]:
    """p99 and maximum of the producer's and the consumer's latencies together."""
    latencies = [sample.latency_ms for sample in samples] or [0.0]
    return {"p99 ms": percentile(latencies, 0.99), "max ms": max(latencies)}
