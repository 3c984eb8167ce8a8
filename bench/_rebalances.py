"""Members of one group, of either protocol, in a process that does nothing else.

They do what clients do, and nothing of what costs a library its time: heartbeat as often as they
are told, and at once when they have given up or got partitions. All begin to join together. Then
one more joins, and one leaves.
"""

import asyncio
import random
import struct
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias
from uuid import uuid4

from tests.support.raw_members import (
    Connection,
    RawMember,
    Reader,
    Timeouts,
    find_coordinator,
)

CONSUMER_HEARTBEAT: Final = 68, 1
HEARTBEAT_S: Final = 1.0
_PATIENCE_S: Final = 90.0
_LOOK_S: Final = 0.005
_AGAIN: Final = frozenset({14, 15, 16})
"""COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR."""
_INT32: Final = struct.Struct(">i")

Place: TypeAlias = tuple[bytes, int]


class Change(NamedTuple):
    """The cost of a change: the time until all members had what they are to have, the most
    heartbeats of one member, and the longest time in which a member that was there before had
    nothing."""

    settled_s: float
    heartbeats: int
    idle_s: float


class Ledger:
    """Which member has what, and since when one has nothing."""

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self.heartbeats: dict[object, int] = {}
        self._has: dict[object, frozenset[Place]] = {}
        self._empty_since: dict[object, float] = {}
        self._idle: dict[object, float] = {}
        self._watched: frozenset[object] = frozenset()

    def begin(self) -> None:
        """Count anew. Members that have partitions now are watched."""
        self.heartbeats.clear()
        self._idle.clear()
        self._watched = frozenset(member for member, has in self._has.items() if has)

    def beats(self, member: object) -> None:
        self.heartbeats[member] = self.heartbeats.get(member, 0) + 1

    def has(self, member: object, places: Iterable[Place]) -> None:
        now, before, after = time.perf_counter(), self._has.get(member), frozenset(places)
        self._has[member] = after
        if before and not after:
            self._empty_since[member] = now
        elif after and member in self._empty_since:
            idle = now - self._empty_since.pop(member)
            self._idle[member] = max(idle, self._idle.get(member, 0.0))

    def leaves(self, member: object) -> None:
        for known in (self._has, self._empty_since, self._idle):
            known.pop(member, None)
        self._watched -= {member}

    def is_settled(self, members: int) -> bool:
        """Return whether everybody has an equal share, and all partitions have one owner."""
        least = self.partitions // members
        sizes = [len(has) for has in self._has.values()]
        distinct = frozenset[Place]().union(*self._has.values())
        return (
            len(sizes) == members
            and min(sizes) >= least
            and sum(sizes) == len(distinct) == self.partitions
        )

    def change(self, settled_s: float) -> Change:
        idle = [self._idle.get(member, 0.0) for member in self._watched]
        return Change(settled_s, max(self.heartbeats.values(), default=0), max(idle, default=0.0))


class ConsumerMember:
    """A member of the consumer protocol."""

    def __init__(self, ledger: Ledger, connection: Connection, group_id: str, topic: str) -> None:
        self._ledger = ledger
        self._connection = connection
        self._group_id = group_id
        self._topic = topic
        self._member_id = str(uuid4())
        self._epoch = 0
        self._has: frozenset[Place] = frozenset()
        self._says_what_it_has = True

    async def stay(self) -> None:
        """Be a member until cancelled."""
        interval_s = HEARTBEAT_S
        while True:
            joins = self._epoch == 0
            claimed = self._has if joins or self._says_what_it_has else None
            answer = Reader(
                await self._connection.call(CONSUMER_HEARTBEAT, self._body(joins, claimed))
            )
            self._ledger.beats(self)
            answer.skip(1 + 4)
            code = answer.int16()
            if code in _AGAIN:
                await asyncio.sleep(0.05)
                continue
            if code:
                raise RuntimeError(f"a heartbeat was answered with the error {code}")
            self._says_what_it_has = False
            _compact_data(answer)
            _compact_data(answer)
            self._epoch, interval_s = answer.int32(), answer.int32() / 1000
            assigned = _assignment(answer)
            if assigned is not None and assigned != self._has:
                self._has = assigned
                self._ledger.has(self, assigned)
                self._says_what_it_has = True
                continue
            await asyncio.sleep(interval_s)

    async def leave(self) -> None:
        self._epoch = -1
        self._ledger.leaves(self)
        await self._connection.call(CONSUMER_HEARTBEAT, self._body(joins=False, claimed=None))
        self._connection.close()

    def _body(self, joins: bool, claimed: frozenset[Place] | None) -> bytes:
        names = _compact(self._topic)
        return b"".join(
            (
                b"\0",
                _compact(self._group_id),
                _compact(self._member_id),
                _INT32.pack(self._epoch),
                b"\0\0",
                _INT32.pack(60_000 if joins else -1),
                b"\2" + names if joins else b"\0",
                b"\0\0",
                b"\0" if claimed is None else _places(claimed),
                b"\0",
            )
        )


class ClassicMember:
    """A member of the classic protocol, which stops for each rebalance."""

    def __init__(
        self, ledger: Ledger, connection: Connection, group_id: str, partitions: int
    ) -> None:
        timeouts = Timeouts(session_ms=45_000, rebalance_ms=60_000, heartbeat_s=HEARTBEAT_S)
        self._ledger = ledger
        self._partitions = partitions
        self._member = RawMember(connection, group_id, self._assign, timeouts)
        self._connection = connection

    async def stay(self) -> None:
        """Be a member until cancelled."""
        while True:
            self._ledger.has(self, ())
            await self._member.join()
            got = self._member.assignment
            numbers = struct.unpack(f">{len(got) // 4}i", got)
            self._ledger.has(self, [(b"", number) for number in numbers])
            while True:
                await asyncio.sleep(HEARTBEAT_S)
                self._ledger.beats(self)
                if await self._member.heartbeat():
                    break

    async def leave(self) -> None:
        self._ledger.leaves(self)
        await self._member.leave()
        self._connection.close()

    def _assign(self, member_ids: Sequence[str]) -> dict[str, bytes]:
        step = len(member_ids)
        return {
            member_id: b"".join(map(_INT32.pack, range(at, self._partitions, step)))
            for at, member_id in enumerate(member_ids)
        }


Member: TypeAlias = ConsumerMember | ClassicMember


class Group:
    """The members that are there, each in a task of its own."""

    def __init__(self, ledger: Ledger, new: Callable[[], Awaitable[Member]]) -> None:
        self._ledger = ledger
        self._new = new
        self._tasks: dict[Member, asyncio.Task[None]] = {}

    async def changes(
        self, count: int, cpu_s: Callable[[], float]
    ) -> Mapping[str, tuple[Change, float]]:
        """Let all join, one more, and one leave; return each change with the brokers' CPU time."""
        return {
            "all join": await self._change(cpu_s, lambda: self._join(count)),
            "one joins": await self._change(cpu_s, lambda: self._join(1)),
            "one leaves": await self._change(cpu_s, self._leave_one),
        }

    async def _change(
        self, cpu_s: Callable[[], float], change: Callable[[], Awaitable[None]]
    ) -> tuple[Change, float]:
        await asyncio.sleep(HEARTBEAT_S * 1.5)
        self._ledger.begin()
        before, begin = cpu_s(), time.perf_counter()
        await change()
        async with asyncio.timeout(_PATIENCE_S):
            while not self._ledger.is_settled(len(self._tasks)):
                await asyncio.sleep(_LOOK_S)
                for task in self._tasks.values():
                    if task.done():
                        task.result()
        settled_s = time.perf_counter() - begin
        return self._ledger.change(settled_s), cpu_s() - before

    async def _join(self, count: int) -> None:
        members = [await self._new() for _ in range(count)]
        for member in members:
            self._tasks[member] = asyncio.create_task(member.stay())

    async def _leave_one(self) -> None:
        member = random.choice([*self._tasks])
        self._tasks.pop(member).cancel()
        await member.leave()

    async def end(self) -> None:
        for member, task in self._tasks.items():
            task.cancel()
            await member.leave()


Changes: TypeAlias = Mapping[str, tuple[Change, float]]


def rebalances(
    bootstrap: str, protocol: str, topic: str, members: int, partitions: int, pids: Sequence[int]
) -> Changes:
    """Return what each change of a group with so many members costs.

    Raises:
        TimeoutError: the group does not settle.
    """
    return asyncio.run(_rebalances(bootstrap, protocol, topic, members, partitions, pids))


async def _rebalances(
    bootstrap: str, protocol: str, topic: str, members: int, partitions: int, pids: Sequence[int]
) -> Changes:
    from bench.peers.processes import cpu_seconds

    group_id = f"rebalance-{uuid4()}"
    coordinator = await find_coordinator(bootstrap, group_id)
    ledger = Ledger(partitions)

    async def new() -> Member:
        connection = await Connection.open(coordinator)
        if protocol == "consumer":
            return ConsumerMember(ledger, connection, group_id, topic)
        return ClassicMember(ledger, connection, group_id, partitions)

    group = Group(ledger, new)
    changes = await group.changes(members, lambda: cpu_seconds(pids))
    await group.end()
    return changes


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])


def _compact(text: str) -> bytes:
    raw = text.encode()
    return _varint(len(raw) + 1) + raw


def _places(places: frozenset[Place]) -> bytes:
    by_topic: dict[bytes, list[int]] = {}
    for topic_id, partition in places:
        by_topic.setdefault(topic_id, []).append(partition)
    topics = (
        topic_id + _varint(len(own) + 1) + b"".join(map(_INT32.pack, own)) + b"\0"
        for topic_id, own in by_topic.items()
    )
    return _varint(len(by_topic) + 1) + b"".join(topics)


def _length(answer: Reader) -> int:
    number = shift = 0
    while True:
        byte = answer.take(1)[0]
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number - 1
        shift += 7


def _compact_data(answer: Reader) -> bytes:
    return answer.take(max(0, _length(answer)))


def _assignment(answer: Reader) -> frozenset[Place] | None:
    if answer.take(1) != b"\1":
        return None
    places = []
    for _ in range(_length(answer)):
        topic_id = answer.take(16)
        places += [(topic_id, answer.int32()) for _ in range(_length(answer))]
        answer.skip(1)
    return frozenset(places)
