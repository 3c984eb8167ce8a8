"""The positions at which a follower may be sent more, now or after the throttle or the disk."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from quorate.broker.log import ColdRead
from quorate.broker.replication.hosting.hosted_partition import HostedPartition
from quorate.broker.replication.hosting.partition_table import PartitionTable
from quorate.common.types import TopicIdPartition

log = logging.getLogger(__name__)


class FollowerPosition:
    """A follower's position in one partition, in one leader epoch."""

    __slots__ = (
        "fetch_offset",
        "hosted",
        "is_loaded",
        "is_sent",
        "leader_epoch",
        "log_start_offset",
    )

    def __init__(
        self, hosted: HostedPartition, leader_epoch: int, fetch_offset: int, log_start_offset: int
    ) -> None:
        self.hosted = hosted
        self.leader_epoch = leader_epoch
        self.fetch_offset = fetch_offset
        self.log_start_offset = log_start_offset
        self.is_sent = False
        """Whether data is on its way: the follower's next request is waited for."""
        self.is_loaded = False
        """Whether what comes next was on the disk alone, and has been read into memory."""

    def move(self, fetch_offset: int) -> None:
        """Note what the follower wants next: it has what was sent to it."""
        self.fetch_offset = fetch_offset
        self.is_sent = False

    def note_log_start(self, log_start_offset: int) -> bool:
        """Note where the follower's log begins. Return whether it begins later than before."""
        if log_start_offset <= self.log_start_offset:
            return False
        self.log_start_offset = log_start_offset
        return True

    def note_loaded(self) -> None:
        """Note that memory holds what comes next."""
        self.is_loaded = True

    def note_sent(self) -> None:
        """Note that data is on its way."""
        self.is_sent = True
        self.is_loaded = False

    @property
    def is_readable(self) -> bool:
        """Whether there is more for the follower, and it has what was sent before."""
        return not self.is_sent and self.fetch_offset < self.hosted.log.flushed_offset


class ReadyPositions:
    """The positions of one session that are ready, throttled, or being loaded."""

    def __init__(self, table: PartitionTable, wake: Callable[[], None]) -> None:
        """``wake`` is called when something that waited for the disk may go on."""
        self._table = table
        self._wake = wake
        self._readable: dict[TopicIdPartition, FollowerPosition] = {}
        self._held: dict[TopicIdPartition, FollowerPosition] = {}
        """Positions that are readable, but that the throttle keeps waiting."""
        self._loading: dict[TopicIdPartition, tuple[FollowerPosition, asyncio.Task[None]]] = {}
        """Positions that are readable, but what comes next is on the disk alone."""

    def mark(self, position: FollowerPosition) -> bool:
        """Note that a position may be readable. Return whether there is something to send."""
        tip = position.hosted.tip
        if not position.is_readable or tip in self._held or tip in self._loading:
            return False
        self._readable[tip] = position
        return True

    def drop(self, tip: TopicIdPartition) -> None:
        """Send nothing of that partition."""
        self._readable.pop(tip, None)
        self._held.pop(tip, None)
        self._loading.pop(tip, None)

    def close(self) -> None:
        """Send nothing more, and load nothing more."""
        for _, loading in self._loading.values():
            loading.cancel()
        self._readable.clear()
        self._held.clear()
        self._loading.clear()

    @property
    def is_held_back(self) -> bool:
        """Whether the throttle keeps any of them waiting."""
        return bool(self._held)

    @property
    def throttled_ms(self) -> int:
        """The time for which the positions that are held back still have to wait, or 0."""
        return self._table.throttles.leader.wait_ms(self._table.clock.now_ms()) if self._held else 0

    def has_any(self) -> bool:
        """Say whether something may be sent now, also of what had to wait for the throttle."""
        if self._held and not self.throttled_ms:
            self._readable.update(self._held)
            self._held.clear()
        return bool(self._readable)

    def all(self) -> tuple[FollowerPosition, ...]:
        """Return what may be sent now, in the order in which it became ready."""
        return tuple(self._readable.values())

    def take(self, position: FollowerPosition) -> None:
        """Take a position that has its turn; it is marked again when there is more."""
        del self._readable[position.hosted.tip]

    def hold(self, position: FollowerPosition) -> None:
        """Have a position that was taken wait for the throttle."""
        self._held[position.hosted.tip] = position

    def load(self, position: FollowerPosition, cold: ColdRead) -> None:
        """Go on with a position that was taken when its data is in memory; others go ahead."""
        tip = position.hosted.tip
        loading = asyncio.ensure_future(cold.load())
        self._loading[tip] = position, loading
        loading.add_done_callback(partial(self._loaded, tip))

    def _loaded(self, tip: TopicIdPartition, loading: "asyncio.Task[None]") -> None:
        """Read the position now, whatever came of the loading: the read shows a fault or waits."""
        if not loading.cancelled() and (error := loading.exception()) is not None:
            log.warning("cannot load what a follower reads: %s", error)
        position, latest = self._loading.get(tip, (None, None))
        if position is None or latest is not loading:
            return
        del self._loading[tip]
        position.note_loaded()
        if self.mark(position):
            self._wake()
