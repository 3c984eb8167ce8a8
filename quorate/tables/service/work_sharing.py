"""Which tables a process of a table service takes. It is pure.

No process knows how many there are: each sees only who is in charge of which table. A process
takes tables that nobody is in charge of. While another one has at least two tables more than it
has itself, it takes over one of those; so processes come to equal shares one step at a time, and
none is moved without need. Whoever loses a table learns it at its next commit; nothing is written
twice (`table_position`).
"""

import hashlib
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Taking:
    """A table to begin."""

    table: str
    take_over: bool
    """True if a run that is alive is replaced."""


def to_take(owners: Mapping[str, str | None], running: Collection[str], me: str) -> list[Taking]:
    """Return the tables that a process begins now.

    Args:
        owners: the process in charge of each wanted table; None if no run of it is alive.
        running: the tables that this process is already working on.
        me: the name of this process.
    """
    mine = [one for one, owner in owners.items() if owner == me and one not in running]
    free = [one for one, owner in owners.items() if owner is None and one not in running]
    # Processes that start together go through free tables in different orders.
    free.sort(key=lambda table: hashlib.sha256(f"{me} {table}".encode()).digest())
    taken = [Taking(one, take_over=True) for one in sorted(mine)]
    taken += [Taking(one, take_over=False) for one in free]
    if taken:
        return taken
    return _from_the_richest(owners, len(running), me)


def _from_the_richest(owners: Mapping[str, str | None], mine: int, me: str) -> list[Taking]:
    counts = Counter(owner for owner in owners.values() if owner not in (None, me))
    if not counts:
        return []
    richest, count = max(counts.items(), key=lambda one: (one[1], one[0] or ""))
    if count < mine + 2:
        return []
    return [Taking(min(one for one, owner in owners.items() if owner == richest), take_over=True)]
