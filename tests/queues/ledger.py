"""What workers got and what they were answered, record by record, and whether that may be."""

import threading
import time
from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from tests.queues.history import Delivery, Record, delivered_after_the_answer, held_twice

_SHOWN: Final = 10


class Ledger:
    """Notes of all workers. Methods may be called from any thread.

    A record is settled when a worker was answered that its acceptance or rejection is in force.

    Workers with a client library keep records that the library has fetched before, and do not know
    when it asked for them. So they settle records, and what they get is checked for existence only.
    """

    def __init__(self, produced: Iterable[Record]) -> None:
        self._lock = threading.Lock()
        self._produced = frozenset(produced)
        self._deliveries: defaultdict[Record, list[Delivery]] = defaultdict(list)
        self._seen: set[Record] = set()
        self._settled: dict[Record, tuple[str, float]] = {}
        self._unknown: set[Record] = set()
        self._faults: list[str] = []
        self.handed_out = 0
        self.last_delivery_s = time.monotonic()

    # -- notes -----------------------------------------------------------------------------------

    def delivered(self, deliveries: Iterable[Delivery]) -> None:
        """Note that a worker got records, and knows when it asked for them."""
        known = list(deliveries)
        for one in known:
            self.seen(one.worker, [one.record])
        with self._lock:
            for one in known:
                self._deliveries[one.record].append(one)

    def seen(self, worker: str, records: Iterable[Record]) -> None:
        """Note that a worker got records."""
        with self._lock:
            for record in records:
                self.last_delivery_s = time.monotonic()
                self.handed_out += 1
                self._seen.add(record)
                if record not in self._produced:
                    self._faults.append(f"{worker} got {record}, which nobody produced")

    def settled(self, worker: str, records: Iterable[Record]) -> None:
        """Note that a worker was told that what it said is in force."""
        now_s = time.monotonic()
        with self._lock:
            for record in records:
                before, _ = self._settled.setdefault(record, (worker, now_s))
                if before != worker or record not in self._seen:
                    self._faults.append(f"{record} was settled by {worker}, and by {before} before")

    def unknown(self, records: Iterable[Record]) -> None:
        """Note that a worker was not told whether what it said is in force."""
        with self._lock:
            self._unknown.update(records)

    # -- figures ---------------------------------------------------------------------------------

    @property
    def left(self) -> int:
        """How many records are not settled, as far as is known."""
        with self._lock:
            return len(self._produced - self._settled.keys())

    @property
    def redelivered(self) -> int:
        with self._lock:
            return self.handed_out - len(self._seen)

    @property
    def is_complete(self) -> bool:
        """Whether every record is settled, or may be, as far as is known."""
        with self._lock:
            return not self._produced - self._settled.keys() - self._unknown

    @property
    def unanswered(self) -> int:
        """How many records may be settled, and nobody was told."""
        with self._lock:
            return len(self._unknown - self._settled.keys())

    @property
    def judged(self) -> int:
        """How many deliveries have a time and a leader epoch, so that locks are checked."""
        with self._lock:
            every = self._deliveries.values()
            return sum(one.leader_epoch is not None for some in every for one in some)

    # -- checks ----------------------------------------------------------------------------------

    def check(self) -> list[str]:
        """Return what must not be."""
        with self._lock:
            faults = list(self._faults)
            faults += self._lost()
            for record, deliveries in sorted(self._deliveries.items()):
                faults += held_twice(deliveries)
                if record in self._settled:
                    faults += delivered_after_the_answer(deliveries, self._settled[record][1])
        return faults

    def _lost(self) -> list[str]:
        lost = self._produced - self._settled.keys() - self._unknown
        never = self._produced - self._seen
        faults = [f"{record} was never delivered" for record in sorted(never)[:_SHOWN]]
        return faults + [
            f"{record} is lost after {len(self._deliveries[record])} deliveries with known times"
            for record in sorted(lost - never)[:_SHOWN]
        ]
