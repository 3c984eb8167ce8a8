"""Where a follower may be sent more, and what waits for the throttle or for the disk."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from broker.log import ColdRead
from broker.replication.hosted import HostedPartition
from broker.replication.partition_table import PartitionTable
from metadata_log.types import TopicIdPartition

log = logging.getLogger(__name__)


class FollowerPosition:
    """A follower's position in one partition, in one leader epoch."""

    __slots__ = (
        "fetch_offset",
        "hosted",
        "is_loaded",
        "leader_epoch",
        "log_start_offset",
        "sent",
    )

    def __init__(self, hosted: HostedPartition, leader_epoch: int, fetch_offset: int) -> None:
        self.hosted = hosted
        self.leader_epoch = leader_epoch
        self.fetch_offset = fetch_offset
        self.log_start_offset = 0
        self.sent = False
        """Data is on its way: the follower's next word is waited for."""
        self.is_loaded = False
        """What comes next was on the disk alone, and has been read into memory."""

    @property
    def is_readable(self) -> bool:
        return not self.sent and self.fetch_offset < self.hosted.log.flushed_offset


class ReadyPositions:
    """Of one session. ``wake`` is called when something that waited for the disk may go on."""

    def __init__(self, table: PartitionTable, wake: Callable[[], None]) -> None:
        self._table = table
        self._wake = wake
        self._readable: dict[TopicIdPartition, FollowerPosition] = {}
        self._held: dict[TopicIdPartition, FollowerPosition] = {}
        """Would be readable, but the throttle keeps them waiting."""
        self._loading: dict[TopicIdPartition, tuple[FollowerPosition, asyncio.Task[None]]] = {}
        """Would be readable, but what comes next is on the disk alone."""

    def mark(self, position: FollowerPosition) -> bool:
        """Whether there is something to send to the follower, now or once the throttle lets it."""
        tip = position.hosted.tip
        if not position.is_readable or tip in self._held or tip in self._loading:
            return False
        self._readable[tip] = position
        return True

    def drop(self, tip: TopicIdPartition) -> None:
        """Nothing is to be sent of that partition."""
        self._readable.pop(tip, None)
        self._held.pop(tip, None)
        self._loading.pop(tip, None)

    def close(self) -> None:
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
        """How long positions that are held back have to wait still; 0: none has to."""
        return self._table.throttles.leader.wait_ms(self._table.now_ms()) if self._held else 0

    def has_any(self) -> bool:
        """Whether something may be sent now, also of what had to wait for the throttle."""
        if self._held and not self.throttled_ms:
            self._readable.update(self._held)
            self._held.clear()
        return bool(self._readable)

    def all(self) -> tuple[FollowerPosition, ...]:
        """What may be sent now, in the order in which it became ready."""
        return tuple(self._readable.values())

    def take(self, position: FollowerPosition) -> None:
        """It has its turn: sent something or not, it is marked again when there is more."""
        del self._readable[position.hosted.tip]

    def hold(self, position: FollowerPosition) -> None:
        """Have one that was taken wait for the throttle."""
        self._held[position.hosted.tip] = position

    def load(self, position: FollowerPosition, cold: ColdRead) -> None:
        """Go on with one that was taken once what it is about is in memory; others go ahead."""
        tip = position.hosted.tip
        loading = asyncio.ensure_future(cold.load())
        self._loading[tip] = position, loading
        loading.add_done_callback(partial(self._loaded, tip))

    def _loaded(self, tip: TopicIdPartition, loading: "asyncio.Task[None]") -> None:
        """Read now, whatever became of it: a fault shows then, or the disk is waited for."""
        if not loading.cancelled() and (error := loading.exception()) is not None:
            log.warning("cannot load what a follower reads: %s", error)
        position, latest = self._loading.get(tip, (None, None))
        if position is None or latest is not loading:
            return
        del self._loading[tip]
        position.is_loaded = True
        if self.mark(position):
            self._wake()
