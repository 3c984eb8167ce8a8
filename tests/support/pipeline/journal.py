"""Writes down what a process of the pipeline did, line by line, so that a kill -9 loses none of
it."""

import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path


class Kind(StrEnum):
    """The kind of an event. A transaction has ``BEGUN``, then ``COMMITTING`` or ``ABORTING``, and
    then the answer, if one came."""

    BEGUN = "begun"
    COMMITTING = "committing"
    """It is said before the request is sent: without it, nothing can have been committed."""
    COMMITTED = "committed"
    ABORTING = "aborting"
    ABORTED = "aborted"
    FENCED = "fenced"
    """Another one with this transactional id has begun: this process ends."""
    ASSIGNED = "assigned"
    """A member of a group is told: ``places`` has the partitions, with offsets that mean
    nothing."""
    READ = "read"
    OFFSETS_COMMITTING = "offsets committing"
    """It is said before a member's commit is sent; ``places`` are the next offsets to read."""
    OFFSETS_COMMITTED = "offsets committed"
    FAILED = "failed"
    """Something that the process goes on after; ``note`` says what."""


Place = tuple[int, int]
"""Partition and offset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """``at_s``: on the clock that all processes of a machine share."""

    kind: Kind
    at_s: float
    transaction: str = ""
    places: tuple[Place, ...] = ()
    note: str = ""
    keys: tuple[str, ...] = field(default=())
    """The keys of the records read, beside ``places``."""


class Journal:
    """Appends to one file; each line leaves the process before the next step is taken."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)

    def note(
        self,
        kind: Kind,
        *,
        transaction: str = "",
        places: tuple[Place, ...] = (),
        note: str = "",
        keys: tuple[str, ...] = (),
    ) -> None:
        event = Event(
            kind=kind,
            at_s=time.monotonic(),
            transaction=transaction,
            places=places,
            note=note,
            keys=keys,
        )
        self._file.write(json.dumps(asdict(event)).encode() + b"\n")

    def close(self) -> None:
        self._file.close()


def count(path: Path, kind: Kind) -> int:
    """Return how often that has happened, without reading the events."""
    return path.read_bytes().count(json.dumps({"kind": kind})[1:-1].encode() + b",")


def events(path: Path) -> Iterator[Event]:
    """Yield the events of a journal; its last line may be half written."""
    for line in path.read_bytes().splitlines(keepends=True):
        if not line.endswith(b"\n"):
            return
        found = json.loads(line)
        found["kind"] = Kind(found["kind"])
        found["places"] = tuple((partition, offset) for partition, offset in found["places"])
        found["keys"] = tuple(found["keys"])
        yield Event(**found)
