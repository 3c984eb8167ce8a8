"""The memory that requests and responses of clients may hold, over all connections of a broker.

Requests and responses have separate limits, so that a flood of one cannot starve the other. The
classes here use neither a clock nor a socket: they count bytes, refuse, and notify those that wait
once there is room again.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from quorate.broker.config.listeners import QUEUED_MAX_REQUEST_BYTES, QUEUED_MAX_RESPONSE_BYTES
from quorate.common.configuration import Values

_ROOM_CHECK_INTERVAL_MS: Final = 60_000

UNLIMITED: Final = 2**63 - 1


def _ignore_waiting() -> None:
    """Do nothing. This is the default while nobody wants to be notified that somebody waits."""


class RequestMemory:
    """The bytes of requests that are being received or carried out (``queued.max.request.bytes``).

    A large frame takes its bytes in grants, as they arrive. While no memory is left, one frame at a
    time may still grow beyond the limit, until the response to its request is sent. Otherwise many
    frames that have half of their bytes each would wait for one another forever. So the memory that
    is held is at most the limit, plus one frame, plus what each connection without a request in
    flight reads at once.
    """

    def __init__(self, limit_bytes: int = UNLIMITED) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self.muted_bytes = 0
        """The bytes of requests of muted clients, which wait for the end of the mute."""
        self.waits = 0
        self._on_waiting: Callable[[], None] = _ignore_waiting
        self._for_grants: dict[RequestAccount, int] = {}
        self._for_more: dict[RequestAccount, int] = {}
        self._beyond: RequestAccount | None = None

    @property
    def is_full(self) -> bool:
        return self.held_bytes >= self.limit_bytes

    @property
    def muted_bytes_max(self) -> int:
        """The share of the memory that requests of muted clients may hold."""
        return self.limit_bytes // 4

    @property
    def is_waited_for(self) -> bool:
        return bool(self._for_grants or self._for_more)

    def notify_waiting(self, on_waiting: Callable[[], None]) -> None:
        """Call ``on_waiting`` whenever somebody begins to wait for memory."""
        self._on_waiting = on_waiting

    def take(self, account: "RequestAccount", count: int) -> bool:
        """Give ``account`` another ``count`` bytes for a large frame and return True. If there is
        no room, make it wait and return False.
        """
        if self._beyond is not account and self.held_bytes + count > self.limit_bytes:
            if self._beyond is not None:
                self._wait(self._for_grants, account, count)
                return False
            self._beyond = account
        self.held_bytes += count
        return True

    def wait(self, account: "RequestAccount") -> None:
        """Notify ``account`` once there is room. It holds requests that will get a response."""
        self._wait(self._for_more, account, 0)

    def give_back(self, count: int) -> None:
        """Release ``count`` bytes."""
        self.held_bytes -= count
        if self._for_grants or self._for_more:
            self._notify()

    def goes_beyond(self, account: "RequestAccount") -> bool:
        """Return whether ``account`` is the one that may go beyond the limit."""
        return self._beyond is account

    def end_beyond(self) -> None:
        """Let another account go beyond the limit."""
        self._beyond = None
        self._notify()

    def forget(self, account: "RequestAccount") -> None:
        """Remove ``account`` from the queues of those that wait."""
        self._for_grants.pop(account, None)
        self._for_more.pop(account, None)

    def _wait(self, queue: "dict[RequestAccount, int]", account: "RequestAccount", n: int) -> None:
        if account not in queue:
            queue[account] = n
            self.waits += 1
            self._on_waiting()

    def _notify(self) -> None:
        """Notify those that wait. Accounts that wait for a grant come first. Each of them takes its
        grant while it is notified.
        """
        while self._for_grants:
            account, count = next(iter(self._for_grants.items()))
            if self._beyond is not None and self.held_bytes + count > self.limit_bytes:
                return
            del self._for_grants[account]
            account.on_room()
        while self._for_more and not self.is_full:
            account = next(iter(self._for_more))
            del self._for_more[account]
            account.on_room()


class RequestAccount:
    """The bytes that one connection holds of a ``RequestMemory``. The bytes that came first are
    released first.

    ``on_room`` is called when there is memory again.
    """

    __slots__ = ("_beyond_bytes", "_muted_bytes", "held_bytes", "memory", "on_room")

    def __init__(self, memory: RequestMemory, on_room: Callable[[], None]) -> None:
        self.memory = memory
        self.on_room = on_room
        self.held_bytes = 0
        self._muted_bytes = 0
        self._beyond_bytes = 0
        """The number of bytes that must be released before the frame that went beyond the limit is
        released too. It is 0 if no frame has gone beyond the limit, or if the frame is not
        complete.
        """

    def hold(self, count: int) -> None:
        """Hold ``count`` more bytes, even beyond the limit."""
        self.held_bytes += count
        self.memory.held_bytes += count

    def take(self, count: int) -> bool:
        """Take ``count`` more bytes for a large frame. Return False if there are none; ``on_room``
        is called later in that case.
        """
        taken = self.memory.take(self, count)
        if taken:
            self.held_bytes += count
        return taken

    def whole(self) -> None:
        """Record that the large frame has all its bytes."""
        if self.memory.goes_beyond(self) and not self._beyond_bytes:
            self._beyond_bytes = self.held_bytes

    def release(self, count: int) -> None:
        """Release ``count`` bytes."""
        self.held_bytes -= count
        if self._beyond_bytes:
            self._beyond_bytes = max(0, self._beyond_bytes - count)
            if not self._beyond_bytes:
                self.memory.end_beyond()
        self.memory.give_back(count)

    def mute(self) -> bool:
        """Record that a muted client holds these bytes, and return True. Return False if muted
        clients would hold more than their share of the memory.
        """
        muted_bytes = self.memory.muted_bytes + self.held_bytes - self._muted_bytes
        if self.held_bytes and muted_bytes > self.memory.muted_bytes_max:
            return False
        self.memory.muted_bytes = muted_bytes
        self._muted_bytes = self.held_bytes
        return True

    def unmute(self) -> None:
        """Record that the client is no longer muted."""
        self.memory.muted_bytes -= self._muted_bytes
        self._muted_bytes = 0

    def leave(self) -> None:
        """Stop receiving. Requests that are being carried out keep the memory that they hold."""
        self.unmute()
        self.memory.forget(self)
        if self.memory.goes_beyond(self) and not self._beyond_bytes:
            self.memory.end_beyond()


class ResponseMemory:
    """The bytes of responses that are encoded and not yet sent (``queued.max.response.bytes``)."""

    def __init__(self, limit_bytes: int = UNLIMITED) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self.waits = 0
        self._on_waiting: Callable[[], None] = _ignore_waiting
        self._highest_bytes = 0
        self._waiting: dict[asyncio.Future[bool], None] = {}
        self._beyond: ResponseLease | None = None

    @property
    def room_bytes(self) -> int:
        return max(0, self.limit_bytes - self.held_bytes)

    @property
    def is_waited_for(self) -> bool:
        return bool(self._waiting)

    def notify_waiting(self, on_waiting: Callable[[], None]) -> None:
        """Call ``on_waiting`` whenever somebody begins to wait for memory."""
        self._on_waiting = on_waiting

    def change(self, count: int) -> None:
        """Hold ``count`` more bytes, or release some if it is negative."""
        self.held_bytes += count
        if self.held_bytes > self._highest_bytes:
            self._highest_bytes = self.held_bytes
        if self._waiting and self.held_bytes < self.limit_bytes:
            self._notify()

    def _notify(self) -> None:
        for future in self._waiting:
            _tell(future, has_room=True)

    def take_highest(self) -> int:
        """Return the most bytes that were held at once since the previous call."""
        highest_bytes, self._highest_bytes = self._highest_bytes, self.held_bytes
        return highest_bytes

    async def reserve(self, lease: "ResponseLease", wanted_bytes: int) -> int:
        """Call ``lease.reserve`` once there is room, and return its result."""
        while not (room_bytes := lease.reserve(wanted_bytes)):
            await self.wait_for_room(_ROOM_CHECK_INTERVAL_MS)
        return room_bytes

    @property
    def longest_bytes(self) -> int:
        """The size of the longest response that is put together piece by piece."""
        return self.limit_bytes // 2

    async def grow(self, lease: "ResponseLease", size: int) -> None:
        """Have ``lease`` hold ``size`` bytes, for a response that is put together piece by piece.
        Wait while there is no room.

        One response at a time may grow beyond the limit, because otherwise responses that are half
        done would wait for one another.
        """
        while not self.room_bytes and self._beyond not in (None, lease):
            await self.wait_for_room(_ROOM_CHECK_INTERVAL_MS)
        if not self.room_bytes:
            self._beyond = lease
        lease.keep(size)

    def released(self, lease: "ResponseLease") -> None:
        """Let another response go beyond the limit, if it was this one."""
        if self._beyond is lease:
            self._beyond = None
            self._notify()

    async def wait_for_room(self, timeout_ms: int) -> int:
        """Return once there is room, or after ``timeout_ms``. The result is the rest of the
        timeout, in ms.

        The order of waiting does not count: all that wait try again, and some of them find no room.
        """
        if self.room_bytes:
            return timeout_ms
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_ms / 1_000
        room: asyncio.Future[bool] = loop.create_future()
        timer = loop.call_at(deadline_s, partial(_tell, room, has_room=False))
        self._waiting[room] = None
        self.waits += 1
        self._on_waiting()
        try:
            # Not asyncio.wait_for, which needs a task of asyncio: see RequestTask.
            if not await room:
                return 0
        finally:
            timer.cancel()
            del self._waiting[room]
        return max(0, round((deadline_s - loop.time()) * 1_000))


def _tell(future: "asyncio.Future[bool]", *, has_room: bool) -> None:
    if not future.done():
        future.set_result(has_room)


class ResponseLease:
    """The bytes that one response holds of a ``ResponseMemory``, from before its records are read
    until it is sent. The reader of records uses it as a ``replication.api.ReadMemory``.
    """

    __slots__ = ("_memory", "held_bytes")

    def __init__(self, memory: ResponseMemory) -> None:
        self._memory = memory
        self.held_bytes = 0

    def reserve(self, wanted_bytes: int) -> int:
        """Hold up to ``wanted_bytes``, and return how many bytes may be read now. 0 means that
        there is no room.

        The lease gets at most half of the memory that is left, so that a client that does not read
        its responses cannot take all of it.
        """
        self.keep(0)
        self.keep(min(wanted_bytes, (self._memory.room_bytes + 1) // 2))
        return self.held_bytes

    def keep(self, size: int) -> None:
        """Hold ``size`` bytes for the response. ``size`` is 0 once the response is sent, or if it
        will not be sent.
        """
        if size != self.held_bytes:
            change, self.held_bytes = size - self.held_bytes, size
            self._memory.change(change)
            if not size:
                self._memory.released(self)


@dataclass(frozen=True, slots=True)
class ClientMemory:
    """All memory limits for the clients of one broker.

    ``ranges`` is for the frames of range reads. They have as much memory as Kafka's responses, but
    a separate amount, because a client may take long to read a frame of a range read and is not
    closed for that.
    """

    requests: RequestMemory = field(default_factory=RequestMemory)
    responses: ResponseMemory = field(default_factory=ResponseMemory)
    ranges: ResponseMemory = field(default_factory=ResponseMemory)
    elements: ResponseMemory = field(default_factory=ResponseMemory)
    """The elements of large requests, which are waited for before they are decoded. They have a
    quarter of the memory for requests, in addition to it.
    """

    @classmethod
    def of(cls, config: Values) -> "ClientMemory":
        """Return the limits that the configuration sets."""
        limits = (config[QUEUED_MAX_REQUEST_BYTES], config[QUEUED_MAX_RESPONSE_BYTES])
        requests, responses = (UNLIMITED if limit < 0 else limit for limit in limits)
        return cls(
            RequestMemory(requests),
            ResponseMemory(responses),
            ResponseMemory(responses),
            ResponseMemory(requests // 4),
        )

    @property
    def is_waited_for(self) -> bool:
        """True if somebody waits for others to release memory."""
        return self.requests.is_waited_for or self.responses.is_waited_for

    def notify_waiting(self, on_waiting: Callable[[], None]) -> None:
        """Call ``on_waiting`` whenever a Kafka client begins to wait for memory."""
        self.requests.notify_waiting(on_waiting)
        self.responses.notify_waiting(on_waiting)
