"""What clients' requests and answers may hold of a broker's memory, over all its connections.

Requests and answers have a bound each, so that a flood of the one cannot starve the other. Neither
knows a clock or a socket: they count, say no, and tell who waits once there is room again.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from broker.config.listeners import QUEUED_MAX_REQUEST_BYTES, QUEUED_MAX_RESPONSE_BYTES
from metadata_log.configuration import Values

_LOOK_AGAIN_MS: Final = 60_000

UNLIMITED: Final = 2**63 - 1


def _nobody_waits() -> None:
    """Of a bound that nobody watches."""


class RequestMemory:
    """Bytes of requests that are received or carried out (``queued.max.request.bytes``).

    A large frame takes its bytes in grants, as they arrive. While nothing is left, one frame at a
    time may grow beyond the limit all the same, until its request is answered: many that have half
    of their bytes each would wait for one another for ever. So no more is held than the limit and
    one frame, and what connections that wait for no answer read in one go.
    """

    def __init__(self, limit_bytes: int = UNLIMITED) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self.on_waiting: Callable[[], None] = _nobody_waits
        """Called when somebody begins to wait."""
        self.waits = 0
        self._for_grants: dict[RequestAccount, int] = {}
        self._for_more: dict[RequestAccount, int] = {}
        self._beyond: RequestAccount | None = None

    @property
    def is_full(self) -> bool:
        return self.held_bytes >= self.limit_bytes

    @property
    def is_waited_for(self) -> bool:
        return bool(self._for_grants or self._for_more)

    def take(self, account: "RequestAccount", count: int) -> bool:
        """Whether ``account`` may have ``count`` bytes more of a large frame; else it waits."""
        if self._beyond is not account and self.held_bytes + count > self.limit_bytes:
            if self._beyond is not None:
                self._wait(self._for_grants, account, count)
                return False
            self._beyond = account
        self.held_bytes += count
        return True

    def wait(self, account: "RequestAccount") -> None:
        """Tell ``account`` once there is room; it holds requests that will be answered."""
        self._wait(self._for_more, account, 0)

    def give_back(self, count: int) -> None:
        """So many bytes are held no longer."""
        self.held_bytes -= count
        if self._for_grants or self._for_more:
            self._tell()

    def goes_beyond(self, account: "RequestAccount") -> bool:
        """Whether it is the one that may go beyond the limit."""
        return self._beyond is account

    def end_beyond(self) -> None:
        """Another one may go beyond the limit."""
        self._beyond = None
        self._tell()

    def forget(self, account: "RequestAccount") -> None:
        """``account`` waits no longer."""
        self._for_grants.pop(account, None)
        self._for_more.pop(account, None)

    def _wait(self, queue: "dict[RequestAccount, int]", account: "RequestAccount", n: int) -> None:
        if account not in queue:
            queue[account] = n
            self.waits += 1
            self.on_waiting()

    def _tell(self) -> None:
        """Those that wait for a grant first: each takes it while it is told."""
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
    """What one connection holds of a ``RequestMemory``; what came first is let go of first.

    ``on_room``: called when there is some.
    """

    __slots__ = ("_beyond_bytes", "held_bytes", "memory", "on_room")

    def __init__(self, memory: RequestMemory, on_room: Callable[[], None]) -> None:
        self.memory = memory
        self.on_room = on_room
        self.held_bytes = 0
        self._beyond_bytes = 0
        """To be let go of until the frame is that went beyond the limit; 0: none has, or it is not
        whole."""

    def hold(self, count: int) -> None:
        """``count`` bytes more, come what may."""
        self.held_bytes += count
        self.memory.held_bytes += count

    def take(self, count: int) -> bool:
        """Whether there are ``count`` bytes more for a large frame; if not, ``on_room`` follows."""
        taken = self.memory.take(self, count)
        if taken:
            self.held_bytes += count
        return taken

    def whole(self) -> None:
        """The large frame asks for no more."""
        if self.memory.goes_beyond(self) and not self._beyond_bytes:
            self._beyond_bytes = self.held_bytes

    def release(self, count: int) -> None:
        """So many bytes were let go of."""
        self.held_bytes -= count
        if self._beyond_bytes:
            self._beyond_bytes = max(0, self._beyond_bytes - count)
            if not self._beyond_bytes:
                self.memory.end_beyond()
        self.memory.give_back(count)

    def leave(self) -> None:
        """Nothing more is received; what is carried out keeps what it holds."""
        self.memory.forget(self)
        if self.memory.goes_beyond(self) and not self._beyond_bytes:
            self.memory.end_beyond()


class ResponseMemory:
    """Bytes of answers that are made and not yet sent (``queued.max.response.bytes``)."""

    def __init__(self, limit_bytes: int = UNLIMITED) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self.on_waiting: Callable[[], None] = _nobody_waits
        self.waits = 0
        self._highest_bytes = 0
        self._waiting: dict[asyncio.Future[None], None] = {}

    @property
    def room_bytes(self) -> int:
        return max(0, self.limit_bytes - self.held_bytes)

    @property
    def is_waited_for(self) -> bool:
        return bool(self._waiting)

    def change(self, count: int) -> None:
        """So many bytes more are held, or less."""
        self.held_bytes += count
        if self.held_bytes > self._highest_bytes:
            self._highest_bytes = self.held_bytes
        if self._waiting and self.held_bytes < self.limit_bytes:
            for future in self._waiting:
                if not future.done():
                    future.set_result(None)

    def take_highest(self) -> int:
        """The most bytes that were held since this was asked last."""
        highest_bytes, self._highest_bytes = self._highest_bytes, self.held_bytes
        return highest_bytes

    async def reserve(self, lease: "AnswerLease", wanted_bytes: int) -> int:
        """As ``lease.reserve``, once there is room."""
        while not (room_bytes := lease.reserve(wanted_bytes)):
            await self.wait_for_room(_LOOK_AGAIN_MS)
        return room_bytes

    async def wait_for_room(self, timeout_ms: int) -> int:
        """Return once there is room, or after ``timeout_ms``; how many of them are left.

        Whoever waited longest does not come first: all look again, and one of them finds less.
        """
        if self.room_bytes:
            return timeout_ms
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_ms / 1_000
        room: asyncio.Future[None] = loop.create_future()
        self._waiting[room] = None
        self.waits += 1
        self.on_waiting()
        try:
            await asyncio.wait_for(room, timeout_ms / 1_000)
        except TimeoutError:
            return 0
        finally:
            del self._waiting[room]
        return max(0, round((deadline_s - loop.time()) * 1_000))


class AnswerLease:
    """What one answer holds of a ``ResponseMemory``, from before its records are read until it is
    sent; ``replication.api.ReadRoom`` for who reads them."""

    __slots__ = ("_memory", "held_bytes")

    def __init__(self, memory: ResponseMemory) -> None:
        self._memory = memory
        self.held_bytes = 0

    def reserve(self, wanted_bytes: int) -> int:
        """How many of ``wanted_bytes`` may be read now; they are held. 0: there is no room.

        No more than half of what is left: whoever does not read must not have it all.
        """
        self.keep(0)
        self.keep(min(wanted_bytes, (self._memory.room_bytes + 1) // 2))
        return self.held_bytes

    def keep(self, size: int) -> None:
        """The answer has ``size`` bytes; 0: it is sent, or will not be."""
        if size != self.held_bytes:
            change, self.held_bytes = size - self.held_bytes, size
            self._memory.change(change)


@dataclass(frozen=True, slots=True)
class ClientMemory:
    """All bounds of one broker.

    ``ranges``: frames of range reads. They have as much as Kafka's answers, and apart from them:
    a reader of a range may take long over a frame, and is not closed for it.
    """

    requests: RequestMemory = field(default_factory=RequestMemory)
    responses: ResponseMemory = field(default_factory=ResponseMemory)
    ranges: ResponseMemory = field(default_factory=ResponseMemory)

    @classmethod
    def of(cls, config: Values) -> "ClientMemory":
        """As configured."""
        limits = (config[QUEUED_MAX_REQUEST_BYTES], config[QUEUED_MAX_RESPONSE_BYTES])
        requests, responses = (UNLIMITED if limit < 0 else limit for limit in limits)
        return cls(RequestMemory(requests), ResponseMemory(responses), ResponseMemory(responses))

    @property
    def is_waited_for(self) -> bool:
        """Whether somebody waits for others to let go of memory."""
        return self.requests.is_waited_for or self.responses.is_waited_for
