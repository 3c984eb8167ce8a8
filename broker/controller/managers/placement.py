"""Where the replicas of a new topic go: striped over the brokers, and over racks if all have one.

Leaders go round the brokers, followers round the rest with a stride that grows each time the
leaders have gone round, so that the followers of one broker's partitions spread over all others.
Where to begin is the caller's to draw: a fixed beginning would load the first brokers most.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from metadata_log.image import interned
from metadata_log.types import BrokerId


class PlacementStart(NamedTuple):
    """Two random numbers, any non-negative integers."""

    first_broker: int
    stride: int


def place(
    racks: Mapping[BrokerId, str],
    partitions: int,
    replication_factor: int,
    start: PlacementStart,
    *,
    first_partition: int = 0,
) -> tuple[tuple[BrokerId, ...], ...]:
    """Replicas of each partition, the preferred one first; never two on one broker (C4).

    ``racks``: rack of every broker that may be used, "" for none. There must be at least
    ``replication_factor`` brokers. ``first_partition``: number of the first one placed here.
    """
    if not 1 <= replication_factor <= len(racks):
        raise ValueError(f"cannot place {replication_factor} replicas on {len(racks)} brokers")
    rack_of = _rack_of(racks)
    order = _alternating(rack_of)
    return tuple(
        interned(tuple(_replicas(order, rack_of, number, replication_factor, start)))
        for number in range(first_partition, first_partition + partitions)
    )


def start_of(
    racks: Mapping[BrokerId, str], first_replicas: Sequence[BrokerId]
) -> PlacementStart | None:
    """Where a topic's placement began, told from the replicas of its partition 0, so that what is
    added goes on with the same stripes; None if those brokers are not all among ``racks``.
    """
    if not set(racks).issuperset(first_replicas):
        return None
    order = list(_alternating(_rack_of(racks)))
    first = order.index(first_replicas[0])
    if len(first_replicas) == 1:
        return PlacementStart(first, 0)
    return PlacementStart(first, (order.index(first_replicas[1]) - first - 1) % len(order))


def _rack_of(racks: Mapping[BrokerId, str]) -> Mapping[BrokerId, str]:
    """Racks count if every broker has one; else each broker is one for itself."""
    return racks if all(racks.values()) else {broker: str(broker) for broker in racks}


def _alternating(rack_of: Mapping[BrokerId, str]) -> Sequence[BrokerId]:
    """Brokers ordered so that neighbours are in different racks as long as that is possible."""
    by_rack: dict[str, list[BrokerId]] = {}
    for broker in sorted(rack_of):
        by_rack.setdefault(rack_of[broker], []).append(broker)
    tallest = max(map(len, by_rack.values()))
    columns = [by_rack[rack] for rack in sorted(by_rack)]
    if len(by_rack) == len(rack_of):
        return sorted(rack_of)
    return [column[row] for row in range(tallest) for column in columns if row < len(column)]


def _replicas(
    order: Sequence[BrokerId],
    rack_of: Mapping[BrokerId, str],
    number: int,
    replication_factor: int,
    start: PlacementStart,
) -> Iterator[BrokerId]:
    first = (start.first_broker + number) % len(order)
    candidates = list(_after(order, first, start.stride + number // len(order)))
    racks = set(rack_of.values())
    chosen, used = [order[first]], {rack_of[order[first]]}
    while len(chosen) < replication_factor:
        fresh = (one for one in candidates if rack_of[one] not in used)
        best = next(fresh, None) if len(used) < len(racks) else None
        best = candidates[0] if best is None else best
        candidates.remove(best)
        chosen.append(best)
        used.add(rack_of[best])
    return iter(chosen)


def _after(order: Sequence[BrokerId], first: int, stride: int) -> Iterator[BrokerId]:
    """All brokers but ``order[first]``, beginning ``stride`` behind it."""
    others = len(order) - 1
    for step in range(others):
        yield order[(first + 1 + (stride + step) % others) % len(order)]
