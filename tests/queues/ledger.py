"""What workers got and what they were answered, record by record, and whether that may be."""

import threading
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple


class Record(NamedTuple):
    """A record of the topic."""

    partition: int
    offset: int


class Ledger:
    """Notes of all workers. Methods may be called from any thread.

    Clients may keep records that they fetched before a leader died, so a worker may see a record
    late. What it says of it then must not be accepted a second time.
    """

    def __init__(self, produced: Iterable[Record]) -> None:
        self._lock = threading.Lock()
        self._produced = frozenset(produced)
        self._delivered: Counter[Record] = Counter()
        self._accepted: dict[Record, str] = {}
        self._unknown: set[Record] = set()
        self.faults: list[str] = []

    def delivered(self, worker: str, records: Iterable[Record]) -> None:
        """Note that a worker got records."""
        with self._lock:
            for record in records:
                self._delivered[record] += 1
                if record not in self._produced:
                    self.faults.append(f"{worker} got {record}, which nobody produced")

    def accepted(self, worker: str, records: Iterable[Record]) -> None:
        """Note that a worker was told that its acknowledgement is in force."""
        with self._lock:
            for record in records:
                before = self._accepted.setdefault(record, worker)
                if before != worker or not self._delivered[record]:
                    self.faults.append(f"{record} was accepted of {worker}, and of {before} before")

    def unknown(self, records: Iterable[Record]) -> None:
        """Note that a worker was not told whether its acknowledgement is in force."""
        with self._lock:
            self._unknown.update(records)

    @property
    def left(self) -> int:
        """How many records nobody has acknowledged, as far as is known."""
        with self._lock:
            return len(self._produced - self._accepted.keys())

    @property
    def redelivered(self) -> int:
        with self._lock:
            return sum(times - 1 for times in self._delivered.values())

    @property
    def is_complete(self) -> bool:
        """Whether every record was acknowledged, or may have been."""
        with self._lock:
            return not self._produced - self._accepted.keys() - self._unknown

    def check(self) -> list[str]:
        """Return what must not be: records that are lost, or were accepted of two workers."""
        with self._lock:
            lost = self._produced - self._accepted.keys() - self._unknown
            never = self._produced - self._delivered.keys()
            faults = list(self.faults)
        faults += [f"{record} was never delivered" for record in sorted(never)[:10]]
        faults += [f"{record} is lost" for record in sorted(lost - never)[:10]]
        return faults
