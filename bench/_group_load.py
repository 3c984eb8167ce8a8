"""Clients that send what consumer groups ask of brokers, in a process that does nothing else.

They cost little enough that what is measured is the brokers: a client library would take most of
the machine, and wait for its own timers.
"""

import asyncio
import struct
import time
from collections.abc import Sequence
from typing import Final, NamedTuple

from bench._support import percentile
from tests.support.raw_members import (
    COMMIT,
    COORDINATOR_MOVED,
    FETCH,
    Connection,
    RawMember,
    Reader,
    Timeouts,
    commit_body,
    commit_codes,
    find_coordinator,
    text,
)

_PATIENCE_S: Final = 60.0
_PARTITION: Final = struct.Struct(">i")


class Commits(NamedTuple):
    """The outcome of the offset commits: the time that they took together, and each one's
    latency."""

    elapsed_s: float
    latencies_ms: list[float]


def commit(
    bootstrap: str, topic: str, consumers: int, partitions: int, warm_up_s: float, seconds: float
) -> Commits:
    """Every consumer, a group of its own, commits so many partitions, one commit after another,
    and looks for its coordinator again when it must.

    Raises:
        RuntimeError: a commit was refused.
    """
    return asyncio.run(_commit(bootstrap, topic, consumers, partitions, warm_up_s, seconds))


async def _commit(
    bootstrap: str, topic: str, consumers: int, partitions: int, warm_up_s: float, seconds: float
) -> Commits:
    groups = [f"bench-{number}" for number in range(consumers)]
    connections = [
        await Connection.open(await find_coordinator(bootstrap, group_id)) for group_id in groups
    ]
    latencies_ms: list[float] = []
    begin = time.perf_counter() + warm_up_s
    end = begin + seconds

    async def consumer(group_id: str, connection: Connection) -> None:
        offset = 0
        offsets = list(range(partitions))
        now = time.perf_counter()
        timed = 0
        while now < end or not timed:
            offset += 1
            body = commit_body(group_id, topic, [(number, offset) for number in offsets])
            while codes := set(filter(None, commit_codes(await connection.call(COMMIT, body)))):
                if not codes <= COORDINATOR_MOVED:
                    raise RuntimeError(f"a commit of {group_id} was answered with {codes}")
                connection.close()
                connection = await Connection.open(await find_coordinator(bootstrap, group_id))
            before, now = now, time.perf_counter()
            if before >= begin:
                latencies_ms.append((now - before) * 1000)
                timed += 1

        connection.close()

    await asyncio.gather(*map(consumer, groups, connections))
    return Commits(time.perf_counter() - begin, latencies_ms)


class Arrivals(NamedTuple):
    """Seconds from when all of a group began to join: to the first record of the member in the
    middle, and of the last."""

    median_s: float
    last_s: float


def join(bootstrap: str, leaders: Sequence[str], topic: str, group_id: str) -> Arrivals:
    """One member per partition joins a group that has no members, and reads a record of its own.

    ``leaders``: host:port of each partition's leader.
    """
    return asyncio.run(_join(bootstrap, leaders, topic, group_id))


async def _join(bootstrap: str, leaders: Sequence[str], topic: str, group_id: str) -> Arrivals:
    coordinator = await find_coordinator(bootstrap, group_id)
    timeouts = Timeouts(session_ms=45_000, rebalance_ms=60_000, heartbeat_s=0.1)

    def assign(member_ids: Sequence[str]) -> dict[str, bytes]:
        shares = {member_id: b"" for member_id in member_ids}
        for member_id, partition in zip(member_ids, range(len(leaders)), strict=False):
            shares[member_id] = _PARTITION.pack(partition)
        return shares

    members = [
        RawMember(await Connection.open(coordinator), group_id, assign, timeouts) for _ in leaders
    ]
    readers = {leader: await Connection.open(leader) for leader in set(leaders)}
    arrived: list[float] = []

    async def consumer(member: RawMember) -> None:
        await member.join()
        staying = asyncio.create_task(member.stay())
        while not member.assignment or not await _reads(readers, leaders, topic, member):
            await asyncio.sleep(0.005)
        arrived.append(time.perf_counter() - begin)
        while len(arrived) < len(members):
            await asyncio.sleep(0.01)
        staying.cancel()

    begin = time.perf_counter()
    async with asyncio.timeout(_PATIENCE_S):
        await asyncio.gather(*map(consumer, members))
    for member in members:
        await member.leave()
        member.vanish()
    for connection in readers.values():
        connection.close()
    return Arrivals(percentile(arrived, 0.5), max(arrived))


async def _reads(
    readers: dict[str, Connection], leaders: Sequence[str], topic: str, member: RawMember
) -> bool:
    (partition,) = _PARTITION.unpack(member.assignment)
    body = b"".join(
        (
            struct.pack(">iiiibi", -1, 0, 1, 1 << 20, 0, 1),
            text(topic),
            struct.pack(">iiqi", 1, partition, 0, 1 << 20),
        )
    )
    answer = Reader(await readers[leaders[partition]].call(FETCH, body))
    answer.skip(8)
    answer.text()
    answer.skip(8)
    code = answer.int16()
    answer.skip(16)
    answer.skip(16 * max(0, answer.int32()))
    return code == 0 and bool(answer.data())
