"""Large groups over the wire: everybody has its own share, whoever comes, goes or dies."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence

import pytest

from bench._nodes import memory_mb
from quorate.testing import RunningCluster
from quorate.testing.pytest_plugin import ClusterFactory
from quorate_proto.v1 import errors_pb2
from tests.support.raw_members import (
    Connection,
    GroupError,
    RawMember,
    Timeouts,
    find_coordinator,
)
from tests.support.waiting import async_wait_until

pytestmark = [pytest.mark.clients, pytest.mark.integration]

_log = logging.getLogger(__name__)

OPENED_AT_ONCE = 500
PATIENCE_S = 200.0


def a_share_each(member_ids: Sequence[str]) -> dict[str, bytes]:
    return {member_id: b"%d" % number for number, member_id in enumerate(member_ids)}


class LargeGroup:
    """Its members, and what the broker that coordinates it holds for them."""

    def __init__(self, cluster: RunningCluster, timeouts: Timeouts) -> None:
        self._cluster = cluster
        self._timeouts = timeouts
        self._address = ""
        self._generation_id = 0
        self._all: list[RawMember] = []
        self.members: list[RawMember] = []

    async def open(self, count: int) -> None:
        """So many clients connect."""
        self._address = await find_coordinator(self._cluster.bootstrap, "large")
        for first in range(0, count, OPENED_AT_ONCE):
            some = range(first, min(count, first + OPENED_AT_ONCE))
            self.members += await asyncio.gather(*(self.newcomer() for _ in some))

    async def newcomer(self) -> RawMember:
        connection = await Connection.open(self._address)
        member = RawMember(connection, "large", a_share_each, self._timeouts)
        self._all.append(member)
        return member

    async def join(self) -> float:
        """Seconds until all are in one generation, and each has a share of its own."""
        return await self._agree(lambda member: member.join())

    async def _agree(self, first: Callable[[RawMember], Awaitable[object]]) -> float:
        """Everybody does that first, and then what members do, until all are together."""
        begin = time.perf_counter()

        async def live(member: RawMember) -> None:
            await first(member)
            await member.stay()

        tasks = [asyncio.create_task(live(member)) for member in self.members]
        try:
            await async_wait_until(self._is_together, "one generation of all", timeout_s=PATIENCE_S)
        finally:
            for task in tasks:
                task.cancel()
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        for outcome in outcomes:
            assert isinstance(outcome, asyncio.CancelledError), outcome
        return time.perf_counter() - begin

    def _is_together(self) -> bool:
        shares = {(member.generation_id, member.assignment) for member in self.members}
        generations = {generation_id for generation_id, _ in shares}
        if len(generations) > 1 or min(generations) <= self._generation_id:
            return False
        # A member that has joined a generation may not have been told its share of it yet.
        if any(member.is_joining for member in self.members):
            return False
        assert len(shares) == len(self.members), "no share has two owners"
        (self._generation_id,) = generations
        return True

    async def beat(self) -> float:
        """Seconds until every sign of life was answered."""
        begin = time.perf_counter()
        codes = await asyncio.gather(*(member.heartbeat() for member in self.members))
        assert set(codes) == {errors_pb2.NONE}
        return time.perf_counter() - begin

    async def survive(self, dead: Sequence[RawMember]) -> float:
        """Seconds until those who are left share everything among themselves."""
        for member in dead:
            member.vanish()
        gone = set(dead)
        self.members = [member for member in self.members if member not in gone]
        return await self._agree(lambda member: member.heartbeat())

    def coordinator_bytes(self) -> float:
        return memory_mb(self._cluster)["broker RSS MB"] * 1e6

    async def close(self) -> None:
        for member in self._all:
            member.vanish()
        await asyncio.sleep(0)


async def live(cluster: RunningCluster, count: int, timeouts: Timeouts) -> None:
    group = LargeGroup(cluster, timeouts)
    try:
        await group.open(count)
        before = group.coordinator_bytes()
        joined_s = await group.join()
        member_bytes = (group.coordinator_bytes() - before) / count
        beat_s = await group.beat()
        with pytest.raises(GroupError) as refused:
            await (await group.newcomer()).join()
        assert refused.value.code == errors_pb2.GROUP_MAX_SIZE_REACHED
        await group.beat()
        gone = group.members.pop()
        assert await gone.leave() == errors_pb2.NONE
        gone.vanish()
        left_s = await group.join()
        died_s = await group.survive(group.members[::2])
        _log.info(
            "%d members: together in %.1f s, %.0f bytes each in the coordinator, signs of life of "
            "all in %.2f s, together again %.1f s after one left and %.1f s after half of them "
            "died (sessions of %.1f s)",
            count,
            joined_s,
            member_bytes,
            beat_s,
            left_s,
            died_s,
            timeouts.session_ms / 1000,
        )
        assert member_bytes < 65_536
    finally:
        await group.close()


@pytest.mark.parametrize(
    ("count", "timeouts"),
    [
        (200, Timeouts(session_ms=2_000, rebalance_ms=30_000, heartbeat_s=0.2)),
        pytest.param(
            10_000,
            Timeouts(session_ms=30_000, rebalance_ms=120_000, heartbeat_s=3.0),
            marks=[pytest.mark.slow, pytest.mark.timeout(600)],
        ),
    ],
)
def test_members_come_go_and_die_and_each_has_a_share(
    quorate_cluster: ClusterFactory, count: int, timeouts: Timeouts
) -> None:
    cluster = quorate_cluster(
        config={
            "group.initial.rebalance.delay.ms": 200,
            "group.max.size": count,
            "group.min.session.timeout.ms": 1000,
        }
    )
    asyncio.run(live(cluster, count, timeouts))
