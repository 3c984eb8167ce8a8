"""Members of share groups of a few lines each: hundreds of them in one process (KIP-932).

A member gives signs of life to its coordinator, and has a session at each leader of its partitions,
where it fetches, works and acknowledges, one fetch after another. What it does with what it gets is
the ``Work`` that it is given.
"""

import asyncio
import contextlib
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final

from quorate_proto.v1 import errors_pb2
from tests.support import raw_share_wire as wire
from tests.support.raw_members import FIND, Connection, Reader, text
from tests.support.raw_share_wire import Acknowledgement, Place, PlaceLeader, ShareFetched
from tests.support.waiting import async_let_time_pass

_PAUSE_S: Final = 0.05
_CALL_S: Final = 20.0
LOST: Final = (OSError, TimeoutError, asyncio.IncompleteReadError)
"""What a call raises if its connection is gone, or silent."""


class Refused(Exception):
    """A session is over, because a broker said so."""

    def __init__(self, code: int) -> None:
        super().__init__(errors_pb2.ErrorCode.Name(code))  # type: ignore[arg-type]
        self.code = code


class ShareSession:
    """What one member has at one leader."""

    def __init__(self, connection: Connection, group_id: str, member_id: str, topic: str) -> None:
        self.connection = connection
        self.member = group_id, member_id
        self.topic = topic
        self._places: frozenset[Place] = frozenset()
        """The partitions of the session."""
        self.heard_at_s = 0.0
        """When the last answer came, by the monotonic clock of the machine."""
        self._epoch = wire.FIRST_EPOCH

    async def fetch(
        self, wanted: Iterable[Place], *, max_wait_ms: int, max_records: int
    ) -> ShareFetched:
        """Fetch from the partitions that are wanted.

        Raises:
            Refused: the session is over.
        """
        wanted = frozenset(wanted)
        body = wire.share_fetch_body(
            self.member,
            self._next_epoch(),
            max_wait_ms=max_wait_ms,
            max_records=max_records,
            places=[place for place in wanted if place not in self._places],
            forgotten=[place for place in self._places if place not in wanted],
        )
        self._places = frozenset(wanted)
        fetched = wire.read_share_fetch(await self._call(wire.SHARE_FETCH, body))
        if fetched.error_code:
            raise Refused(fetched.error_code)
        return fetched

    async def acknowledge(
        self, said: Mapping[Place, Sequence[Acknowledgement]], *, renews: bool = False
    ) -> dict[Place, int]:
        """Say something of records, and return the error code of each partition.

        Raises:
            Refused: the session is over.
        """
        body = wire.acknowledge_body(self.member, self._next_epoch(), said, renews=renews)
        answer = await self._call(wire.SHARE_ACKNOWLEDGE, body)
        code, codes = wire.read_acknowledge(answer)
        if code:
            raise Refused(code)
        return codes

    async def led_in(self, wanted: Mapping[Place, int]) -> frozenset[Place]:
        """Return the partitions that the broker leads in exactly the epochs that are named."""
        epochs = {place[1]: epoch for place, epoch in wanted.items()}
        async with asyncio.timeout(_CALL_S):
            led = await wire.leads_in(self.connection, self.topic, epochs)
        return frozenset(place for place in wanted if place[1] in led)

    def _next_epoch(self) -> int:
        epoch = self._epoch
        self._epoch += 1
        return epoch

    async def _call(self, api: tuple[int, int], body: bytes) -> bytes:
        async with asyncio.timeout(_CALL_S):
            answer = await self.connection.call(api, body)
        self.heard_at_s = time.monotonic()
        return answer


Work = Callable[[ShareSession, Mapping[Place, int]], Awaitable[None]]
"""Fetches once from partitions, which are named with their leader epochs, and acknowledges."""


class RawShareMember:
    """A member, from ``run`` until that is cancelled."""

    def __init__(self, bootstrap: str, group_id: str, topic: str, work: Work) -> None:
        self._addresses = bootstrap.split(",")
        self._group_id = group_id
        self._topic = topic
        self._work = work
        self.member_id = _new_member_id()
        self._epoch = 0
        self._assigned: frozenset[Place] = frozenset()
        self._leaders: dict[str, dict[Place, int]] = {}
        self._serving: dict[str, asyncio.Task[None]] = {}
        self._is_stale = asyncio.Event()
        self.says_goodbye = True

    async def run(self) -> None:
        """Be a member until cancelled; then leave, unless it is not to say good-bye."""
        beating = asyncio.create_task(self._beat())
        try:
            while True:
                with contextlib.suppress(*LOST):
                    await self._look()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._is_stale.wait(), 1.0)
                self._is_stale.clear()
        finally:
            beating.cancel()
            for serving in self._serving.values():
                serving.cancel()
            await asyncio.gather(beating, *self._serving.values(), return_exceptions=True)
            if self.says_goodbye:
                await self._leave()

    # -- membership ------------------------------------------------------------------------------

    async def _beat(self) -> None:
        while True:
            try:
                coordinator = await self._coordinator()
                try:
                    await self._beat_at(coordinator)
                finally:
                    coordinator.close()
            except (*LOST, Refused):
                await async_let_time_pass(_PAUSE_S, "another broker may be the coordinator soon")

    async def _beat_at(self, coordinator: Connection) -> None:
        topics: Sequence[str] | None = [self._topic]
        while True:
            body = wire.heartbeat_body(self._group_id, self.member_id, self._epoch, topics)
            async with asyncio.timeout(_CALL_S):
                answer = wire.read_heartbeat(await coordinator.call(wire.HEARTBEAT, body))
            if answer.error_code in (
                errors_pb2.UNKNOWN_MEMBER_ID,
                errors_pb2.FENCED_MEMBER_EPOCH,
            ):
                self._epoch, topics = 0, [self._topic]
                await async_let_time_pass(_PAUSE_S, "the member joins again")
                continue
            if answer.error_code:
                raise Refused(answer.error_code)
            self._epoch, topics = answer.member_epoch, None
            if answer.assigned is not None and answer.assigned != self._assigned:
                self._assigned = answer.assigned
                self._is_stale.set()
            await async_let_time_pass(answer.interval_ms / 1000, "members beat so often")

    async def _leave(self) -> None:
        with contextlib.suppress(*LOST, Refused):
            coordinator = await self._coordinator()
            body = wire.heartbeat_body(self._group_id, self.member_id, wire.LEAVING, None)
            async with asyncio.timeout(1.0):
                await coordinator.call(wire.HEARTBEAT, body)
            coordinator.close()

    async def _coordinator(self) -> Connection:
        connection = await self._any_broker()
        try:
            async with asyncio.timeout(_CALL_S):
                answer = Reader(await connection.call(FIND, text(self._group_id) + b"\0"))
        finally:
            connection.close()
        answer.skip(4)
        code, _, _ = answer.int16(), answer.text(), answer.int32()
        if code:
            raise Refused(code)
        return await _opened(f"{answer.text()}:{answer.int32()}")

    async def _any_broker(self) -> Connection:
        """Open a connection to the first broker that there is."""
        for address in self._addresses:
            with contextlib.suppress(*LOST):
                return await _opened(address)
        raise ConnectionError("no broker takes connections")

    # -- fetching --------------------------------------------------------------------------------

    async def _look(self) -> None:
        """Ask who leads what, and have a session everywhere."""
        connection = await self._any_broker()
        try:
            async with asyncio.timeout(_CALL_S):
                leaders = await wire.leaders_of(connection, self._topic)
        finally:
            connection.close()
        by_address: dict[str, dict[Place, int]] = {}
        for place in self._assigned & leaders.keys():
            leader: PlaceLeader = leaders[place]
            by_address.setdefault(leader.address, {})[place] = leader.leader_epoch
        self._leaders = by_address
        for address in by_address:
            serving = self._serving.get(address)
            if serving is None or serving.done():
                self._serving[address] = asyncio.create_task(self._serve(address))

    async def _serve(self, address: str) -> None:
        """Work at one leader until something goes wrong there."""
        session: ShareSession | None = None
        try:
            connection = await _opened(address)
            session = ShareSession(connection, self._group_id, self.member_id, self._topic)
            while wanted := self._leaders.get(address):
                await self._work(session, wanted)
        except (*LOST, Refused):
            await async_let_time_pass(_PAUSE_S, "the leader may be another one soon")
        finally:
            if session is not None:
                session.connection.close()
            self._is_stale.set()


async def _opened(address: str) -> Connection:
    async with asyncio.timeout(5.0):
        return await Connection.open(address)


def _new_member_id() -> str:
    """As Kafka's clients make it: a uuid in URL-safe base 64."""
    return urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
