"""The way of control requests to one broker: three lanes, each one request at a time (C17).

A lane holds what is still to be told, not requests: what piles up while a request is under way
goes out as one, built from the newest image. Leadership has a lane of its own, so it never waits
behind the deletion of other partitions or a large UpdateMetadata. A deletion waits for a leadership
request that is under way and names the same partition: the later word must arrive later.
"""

import asyncio
from collections.abc import Iterable

from broker.controller.control_requests import (
    Encoded,
    StoppedReplica,
    assigned_among,
    hosted_by,
)
from broker.controller.lane import Correspondence, Lane
from broker.controller.transport import ControlKind
from metadata_log.image import Broker
from metadata_log.types import TopicIdPartition


class LeadershipLane(Lane):
    """LeaderAndIsr: which partitions the broker has not been told the newest leadership of."""

    kind = ControlKind.LEADER_AND_ISR

    def __init__(self, shared: Correspondence, broker: Broker) -> None:
        super().__init__(shared, broker)
        self._all = False
        self._some: set[TopicIdPartition] = set()
        self._taken: tuple[bool, set[TopicIdPartition]] | None = None
        self._answered = asyncio.Event()
        self._answered.set()

    def tell(self, tips: Iterable[TopicIdPartition]) -> None:
        """Leadership of these changed."""
        self._some.update(tips)
        self._ask()

    def tell_all(self) -> None:
        """Tell of every partition the broker hosts, as an INIT: what it lacks is not its (C7)."""
        self._all = True
        self._ask()

    def forget(self, tips: Iterable[TopicIdPartition]) -> None:
        """These are to be stopped: leadership not yet told is void."""
        self._some.difference_update(tips)

    async def until_answered(self, tips: Iterable[TopicIdPartition]) -> None:
        """Wait while a request is under way that names any of ``tips``."""
        while self._taken is not None and (self._taken[0] or not self._taken[1].isdisjoint(tips)):
            await self._answered.wait()

    async def take(self) -> Encoded | None:
        self._taken = None
        self._answered.set()
        if self._all:
            await self._take_turn()
        if not (self._all or self._some):
            return None
        image, own = self._shared.image(), self._broker.broker_id
        everything, some = self._all, self._some
        self._all, self._some = False, set()
        selection = hosted_by(image, own) if everything else assigned_among(image, own, some)
        if not (everything or selection):
            return None
        self._taken = (everything, some)
        self._answered = asyncio.Event()
        return self._shared.requests.leader_and_isr(image, selection, is_init=everything)

    def take_back(self) -> None:
        if self._taken is not None:
            everything, some = self._taken
            self._all = self._all or everything
            self._some |= some


class StopLane(Lane):
    """StopReplica: replicas the broker is to stop."""

    kind = ControlKind.STOP_REPLICA

    def __init__(self, shared: Correspondence, broker: Broker, leadership: LeadershipLane) -> None:
        super().__init__(shared, broker)
        self._leadership = leadership
        self._stops: dict[TopicIdPartition, StoppedReplica] = {}
        self._taken: dict[TopicIdPartition, StoppedReplica] = {}

    def tell(self, stops: Iterable[StoppedReplica]) -> None:
        """Stop these replicas."""
        added = {stop.tip: stop for stop in stops}
        self._leadership.forget(added)
        self._stops.update(added)
        self._ask()

    async def take(self) -> Encoded | None:
        self._taken, self._stops = self._stops, {}
        if not self._taken:
            return None
        await self._leadership.until_answered(self._taken)
        return self._shared.requests.stop_replica(self._shared.image(), self._taken.values())

    def take_back(self) -> None:
        self._stops = {**self._taken, **self._stops}


class MetadataLane(Lane):
    """UpdateMetadata: everything, or the topics that changed since the broker was told of them."""

    kind = ControlKind.UPDATE_METADATA

    def __init__(self, shared: Correspondence, broker: Broker) -> None:
        super().__init__(shared, broker)
        self._full = False
        self._changed: frozenset[str] | None = None
        """Topics to tell of; none of them where only the brokers have changed, None: no news."""
        self._taken: tuple[bool, frozenset[str] | None] = (False, None)

    def tell_all(self) -> None:
        """Tell of everything."""
        self._full = True
        self._ask()

    def tell(self, changed: frozenset[str]) -> None:
        """Topics have changed, or are gone, or brokers came or went."""
        self._changed = changed if self._changed is None else self._changed | changed
        self._ask()

    async def take(self) -> Encoded | None:
        if self._full:
            await self._take_turn()
        image, requests = self._shared.image(), self._shared.requests
        full, changed = self._taken = (self._full, self._changed)
        self._full, self._changed = False, None
        if full:
            return requests.full_metadata(image)
        return None if changed is None else requests.update_metadata(image, changed)

    def take_back(self) -> None:
        full, changed = self._taken
        self._full = self._full or full
        if changed is not None:
            self._changed = changed | (self._changed or frozenset())


class BrokerChannel:
    """All lanes to one incarnation of one broker."""

    def __init__(self, shared: Correspondence, broker: Broker) -> None:
        self.broker = broker
        self.leadership = LeadershipLane(shared, broker)
        self.stops = StopLane(shared, broker, self.leadership)
        self.metadata = MetadataLane(shared, broker)
        self.told_leadership = False

    def start(self) -> None:
        for lane in (self.leadership, self.stops, self.metadata):
            lane.start()

    def close(self) -> None:
        for lane in (self.leadership, self.stops, self.metadata):
            lane.close()

    async def drained(self) -> None:
        """Wait until leadership and metadata asked for so far are answered."""
        await self.leadership.drained()
        await self.metadata.drained()
