"""Places the replicas of new partitions: striped over brokers, and over racks if every broker has
one.

Leaders are assigned round-robin. Followers are assigned with a stride that grows after each round
of leaders, so that the followers of one broker's partitions are spread over all others. The caller
draws the start at random, because a fixed start would load the first brokers most.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Final, NamedTuple

from quorate.broker.common.errors import KafkaError
from quorate.broker.config.topics import MAX_BROKER_PARTITIONS
from quorate.common.types import ID_BYTES, NO_BROKER, BrokerId, TopicId
from quorate.metadata_log.image import Image
from quorate.metadata_log.partitions import interned
from quorate.metadata_log.records import NewPartition
from quorate_proto.v1 import errors_pb2


class PlacementStart(NamedTuple):
    """The start of a topic's placement: two random non-negative integers."""

    first_broker: int
    stride: int


class NewIds(NamedTuple):
    """The id and the placement start that are drawn for one new topic."""

    topic_id: TopicId
    placement: PlacementStart


def draw_ids(random_bytes: Callable[[int], bytes]) -> NewIds:
    """Return an id and a placement start for a new topic."""
    first_broker, stride = (int.from_bytes(random_bytes(2)) for _ in range(2))
    return NewIds(TopicId(random_bytes(ID_BYTES)), PlacementStart(first_broker, stride))


def first_leadership(replicas: tuple[BrokerId, ...], live: Set[BrokerId]) -> NewPartition:
    """Return a new partition. Its first live replica leads, and all live replicas are in sync
    (C4)."""
    isr = interned(tuple(one for one in replicas if one in live))
    leader = isr[0] if isr else NO_BROKER
    return NewPartition(replicas=interned(replicas), leader=leader, isr=isr)


def place(
    racks: Mapping[BrokerId, str],
    partitions: int,
    replication_factor: int,
    start: PlacementStart,
    *,
    first_partition: int = 0,
) -> tuple[tuple[BrokerId, ...], ...]:
    """Return the replicas of each partition, the preferred one first; never two on one broker (C4).

    ``racks`` has the rack of every broker that may be used, "" for none. There must be at least
    ``replication_factor`` brokers. ``first_partition`` is the number of the first partition placed
    here.
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
    """Return the start of a topic's placement, or None if its first brokers are not all in
    ``racks``.

    It is computed from the replicas of partition 0, so that added partitions continue the same
    stripes.
    """
    if not set(racks).issuperset(first_replicas):
        return None
    order = list(_alternating(_rack_of(racks)))
    first = order.index(first_replicas[0])
    if len(first_replicas) == 1:
        return PlacementStart(first, 0)
    return PlacementStart(first, (order.index(first_replicas[1]) - first - 1) % len(order))


def _rack_of(racks: Mapping[BrokerId, str]) -> Mapping[BrokerId, str]:
    """Return the rack of each broker. If any broker has none, each broker counts as a rack of its
    own."""
    return racks if all(racks.values()) else {broker: str(broker) for broker in racks}


def _alternating(rack_of: Mapping[BrokerId, str]) -> Sequence[BrokerId]:
    """Return the brokers in an order in which neighbours are in different racks as far as
    possible."""
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
    """Yield all brokers except ``order[first]``, beginning ``stride`` after it."""
    others = len(order) - 1
    for step in range(others):
        yield order[(first + 1 + (stride + step) % others) % len(order)]


# --- how many a broker may hold -------------------------------------------------------------------

RECOUNT_AFTER: Final = 10_000


class ReplicaLimit:
    """The most replicas that a broker may hold (``max.broker.partitions``), or no limit.

    Counting all replicas takes time in proportion to the partitions of the cluster. So the last
    count and the limit of that time are kept, with what was accepted since. All are counted again
    where these would exceed the limit, and after ``RECOUNT_AFTER`` replicas: by then it is noticed
    that replicas were moved, or that the limit was lowered.
    """

    def __init__(self, most: Callable[[], int] | None = None) -> None:
        self._configured = most
        self.most = 0
        """The limit when all were counted last."""
        self._counted: tuple[object, object] | None = None
        self._counts: Counter[BrokerId] = Counter()
        self._accepted: Counter[BrokerId] = Counter()

    def begin(self, image: Image) -> "NewReplicas":
        """Return an account of what one decision adds to ``image``."""
        return NewReplicas(self, image)

    def may_exceed(self, wanted: Counter[BrokerId]) -> bool:
        """Return whether only a new count can tell that ``wanted`` more are not too many."""
        if self._configured is None:
            return False
        return self._accepted.total() >= RECOUNT_AFTER or any(
            self._counts[broker] + self._accepted[broker] + new > self.most
            for broker, new in wanted.items()
        )

    def accept(self, added: Counter[BrokerId]) -> None:
        """Keep in mind what may be in the next image."""
        self._accepted += added

    def count(self, image: Image, added: Counter[BrokerId]) -> Counter[BrokerId]:
        """Return what every broker holds in ``image``, additions that are pending included.

        ``added`` is what the present decision has accepted, and the image does not have.
        """
        assert self._configured is not None
        self.most = self._configured()
        counted = (image.topics, image.additions)
        if self._counted is None or any(
            one is not other for one, other in zip(counted, self._counted, strict=True)
        ):
            self._counts = replica_counts(image)
            self._counted = counted
            self._accepted = Counter(added)
        return self._counts


class NewReplicas:
    """The replicas that one decision adds. ``ReplicaLimit.begin`` makes it."""

    def __init__(self, limit: ReplicaLimit, image: Image) -> None:
        self._limit = limit
        self._image = image
        self._added: Counter[BrokerId] = Counter()

    def add(self, topic: str, replicas: Sequence[tuple[BrokerId, ...]]) -> None:
        """Add the replicas of the new partitions of a topic.

        Raises:
            KafkaError: POLICY_VIOLATION, a broker would hold too many.
        """
        wanted = Counter(broker for one in replicas for broker in one)
        if self._limit.may_exceed(wanted):
            held = self._limit.count(self._image, self._added)
            for broker, new in wanted.items():
                total = held[broker] + self._added[broker] + new
                if total > self._limit.most:
                    raise KafkaError(
                        errors_pb2.POLICY_VIOLATION,
                        f"topic {topic!r}: broker {broker} would hold {total} partitions, and "
                        f"{MAX_BROKER_PARTITIONS.name} allows {self._limit.most}: delete some, add "
                        "brokers, or raise the limit",
                    )
        self._added += wanted
        self._limit.accept(wanted)


def replica_counts(image: Image) -> Counter[BrokerId]:
    """Return how many replicas each broker holds, or will hold when pending additions are done."""
    lists: Counter[tuple[BrokerId, ...]] = Counter()
    for topic in image.topics.values():
        lists.update(partition.replicas for partition in topic.partitions)
    for addition in image.additions.values():
        lists.update(addition.replicas)
    counts: Counter[BrokerId] = Counter()
    for replicas, times in lists.items():
        for broker in replicas:
            counts[broker] += times
    return counts
