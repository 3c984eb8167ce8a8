"""Reads the controller's metrics of its event queue: how many events wait, and for how long."""

import json
import re
import threading
import urllib.request
from collections.abc import Mapping
from typing import Final, NamedTuple

from quorate.testing import RunningCluster

_NAMES: Final = (
    "quorate_controller_events_queued",
    "quorate_controller_event_queue_seconds",
    "quorate_controller_event_seconds",
    "quorate_cluster_partitions",
)
_QUERY: Final = "&".join(f"name[]={name}" for name in _NAMES)
_LINE: Final = re.compile(
    r"^(quorate_controller_event\w*|quorate_cluster_partitions)(\{.*\})? (.+)$"
)
_BOUND: Final = re.compile(r'le="([^"]+)"')
_EVERY_S: Final = 1.0
_TIMEOUT_S: Final = 60.0


class Reading(NamedTuple):
    """One reading of the figures, by name with labels."""

    figures: Mapping[str, float]

    @property
    def queued(self) -> float:
        return self.figures["quorate_controller_events_queued"]

    @property
    def partitions(self) -> float:
        return self.figures["quorate_cluster_partitions"]

    def of(self, name: str, suffix: str, priority: str) -> float:
        """Sum or count of a distribution of one priority."""
        return self.figures[f'quorate_controller_{name}_{suffix}{{priority="{priority}"}}']

    def buckets(self, name: str, priority: str) -> dict[float, float]:
        """Counts by upper bound in seconds, each with those below."""
        found = {}
        for key, value in self.figures.items():
            if key.startswith(f"quorate_controller_{name}_bucket") and f'"{priority}"' in key:
                bound = _BOUND.search(key)
                assert bound is not None
                found[float(bound[1])] = value
        return found


def read(address: str) -> Reading:
    """Ask the broker at that address of metrics."""
    with urllib.request.urlopen(f"http://{address}/metrics?{_QUERY}", timeout=_TIMEOUT_S) as page:
        return read_page(page.read().decode())


def read_page(text: str) -> Reading:
    """The figures of a page of metrics."""
    found = (_LINE.match(line) for line in text.splitlines())
    return Reading({one[1] + (one[2] or ""): float(one[3]) for one in found if one})


def metrics_address(cluster: RunningCluster, broker: int) -> str:
    """Return the address (``host:port``) where that broker serves its metrics."""
    groups = json.loads((cluster.folder / "prometheus.json").read_text(encoding="utf-8"))
    for group in groups:
        if group["labels"] == {"kind": "broker", "id": str(broker)}:
            return str(group["targets"][0])
    raise LookupError(f"broker {broker} has no metrics")


def waits(before: Reading, after: Reading, elapsed_s: float) -> dict[str, float]:
    """Return how long events waited between two readings, and how many waited on average.

    "at most" is the upper bound of the highest bucket in which an event is counted.
    """
    waited_s = sum(
        after.of("event_queue_seconds", "sum", one) - before.of("event_queue_seconds", "sum", one)
        for one in ("brokers", "elections", "admin")
    )
    return {
        "queued mean": waited_s / elapsed_s,
        "admin events waited at most ms": _highest(before, after, "event_queue_seconds", "admin"),
        "elections waited at most ms": _highest(before, after, "event_queue_seconds", "brokers"),
        "event took at most ms": _highest(before, after, "event_seconds", "admin"),
    }


def _highest(before: Reading, after: Reading, name: str, priority: str) -> float:
    earlier, later = before.buckets(name, priority), after.buckets(name, priority)
    total = later[float("inf")] - earlier[float("inf")]
    if not total:
        return 0.0
    return 1000 * min(bound for bound in later if later[bound] - earlier[bound] == total)


class QueueSampler:
    """Reads the figures once a second. A context manager."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._stop = threading.Event()
        self._grown = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="queue-sampler")
        self.readings: list[Reading] = []

    def __enter__(self) -> "QueueSampler":
        self._sample()
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stop.set()
        self._thread.join()
        self._sample()

    def wait_for_change(self, partitions: int, timeout_s: float) -> None:
        """Wait until so many partitions have come or gone since the first reading.

        Raises:
            TimeoutError: that did not happen in time.
        """

        def changed() -> bool:
            first, last = self.readings[0].partitions, self.readings[-1].partitions
            return abs(last - first) >= partitions

        with self._grown:
            if not self._grown.wait_for(changed, timeout_s):
                raise TimeoutError(f"fewer than {partitions} partitions have come or gone")

    def _run(self) -> None:
        while not self._stop.wait(_EVERY_S):
            self._sample()

    def _sample(self) -> None:
        reading = read(self._address)
        with self._grown:
            self.readings.append(reading)
            self._grown.notify_all()
