"""Sessions over real voters: expiry, kill -9, leader changes, what is bound to them (rule 9)."""

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from quorate.common.types import NO_SESSION, BrokerId, ControllerEpoch, Endpoint, SessionId
from quorate.metadata_log.features import NEWEST_METADATA_VERSION
from quorate.metadata_log.records import BrokerRegistration, ControllerClaim, Operation, ResultCode
from quorate.quorum.client.quorum_client import QuorumClient
from quorate.quorum.quorum_errors import SessionLost
from tests.integration.quorum_writes import image_now, write
from tests.support.quorum_cluster import QuorumCluster, connected
from tests.support.waiting import async_let_time_pass, async_wait_until

pytestmark = pytest.mark.integration

HOLD_A_SESSION = """
import asyncio, sys
from quorate.quorum.client.quorum_client import QuorumClient

async def main():
    client = QuorumClient(sys.argv[1].split(","), description="victim", session_timeout_ms=30000)
    await client.start(deadline_ms=30000)
    print(client.session_id.hex(), flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


def registration(session_id: SessionId) -> BrokerRegistration:
    return BrokerRegistration(
        broker_id=BrokerId(7),
        session_id=session_id,
        incarnation_id=os.urandom(16),
        kafka=Endpoint("127.0.0.1", 1),
        grpc=Endpoint("127.0.0.1", 2),
        metadata_version_max=NEWEST_METADATA_VERSION,
    )


async def wait_until_gone(client: QuorumClient, session_id: SessionId, timeout_s: float) -> float:
    """Seconds until the session is closed."""
    started = time.monotonic()

    async def is_gone() -> bool:
        return session_id not in (await image_now(client)).sessions

    await async_wait_until(is_gone, "the session to end", timeout_s=timeout_s)
    return time.monotonic() - started


async def test_rule9_killed_client_is_gone_in_about_a_second(tmp_path: Path) -> None:
    with QuorumCluster(tmp_path) as quorum:
        victim = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            HOLD_A_SESSION,
            quorum.bootstrap_servers,
            stdout=subprocess.PIPE,
        )
        assert victim.stdout is not None
        session_id = SessionId(bytes.fromhex((await victim.stdout.readline()).decode()))
        async with connected(quorum) as client:
            assert session_id in (await image_now(client)).sessions
            await async_let_time_pass(0.3, "the session is kept for a while")
            victim.kill()
            await victim.wait()
            assert await wait_until_gone(client, session_id, 10) < 3.0


async def test_rule9_expiry_takes_registration_and_controller_with_it(tmp_path: Path) -> None:
    with QuorumCluster(tmp_path, voters=1) as quorum:
        async with connected(quorum) as watcher, connected(quorum) as broker:
            session_id = broker.session_id
            claim = ControllerClaim(
                broker_id=BrokerId(7),
                session_id=session_id,
                timestamp_ms=1,
                controller_epoch=ControllerEpoch(1),
            )
            result = await broker.transact([Operation(records=(registration(session_id), claim))])
            assert result.ok
            await broker._stop_working()  # Silent, as a hung process is; the session still stands.
            await wait_until_gone(watcher, session_id, 20)
            image = await image_now(watcher)
            assert (image.controller, dict(image.brokers)) == (None, {})
            late = await watcher.transact([Operation(records=(registration(session_id),))])
            assert late.results[0].code is ResultCode.SESSION_GONE


async def test_closed_session_is_gone_at_once(tmp_path: Path) -> None:
    with QuorumCluster(tmp_path, voters=1) as quorum:
        async with connected(quorum) as watcher:
            async with connected(quorum) as client:
                session_id = client.session_id
            assert session_id not in (await image_now(watcher)).sessions


async def test_rule9_sessions_outlive_leader_changes(tmp_path: Path) -> None:
    with QuorumCluster(tmp_path) as quorum:
        async with connected(quorum, session_timeout_ms=3_000) as client:
            lost = asyncio.Event()
            client.on_session_lost(lost.set)
            for _ in range(3):
                killed = await asyncio.to_thread(quorum.wait_for_leader)
                quorum.kill(killed)
                await asyncio.to_thread(quorum.wait_for_leader)
                quorum.start(killed)
                await asyncio.to_thread(quorum.wait_for_leader)
            await async_let_time_pass(3.2, "a session that nobody keeps would end meanwhile")
            assert not lost.is_set()
            await write(client)


@pytest.mark.slow
async def test_rule9_dead_client_expires_through_repeated_leader_changes(tmp_path: Path) -> None:
    """Each new leader lives shorter than the session's timeout; none starts it all over again."""
    with QuorumCluster(tmp_path) as quorum:
        async with connected(quorum, session_timeout_ms=30_000) as watcher:
            async with connected(quorum, session_timeout_ms=2_400) as silent:
                session_id = silent.session_id
                await silent._stop_working()  # A cut link: no stream of it closes, nobody hears it.
                silent.session_id = NO_SESSION
            leader_changes = 0
            started = time.monotonic()
            while session_id in (await image_now(watcher)).sessions:
                assert time.monotonic() - started < 20
                killed = await asyncio.to_thread(quorum.wait_for_leader)
                await async_let_time_pass(1, "each leader lives shorter than the timeout")
                quorum.kill(killed)
                quorum.start(killed)
                await asyncio.to_thread(quorum.wait_for_leader)
                leader_changes += 1
            assert leader_changes >= 2
            assert watcher.session_id in (await image_now(watcher)).sessions


async def test_lost_session_is_told_once_and_can_be_renewed(tmp_path: Path) -> None:
    with QuorumCluster(tmp_path, voters=1) as quorum:
        async with connected(quorum, session_timeout_ms=300) as client:
            losses: list[SessionId] = []
            first = client.session_id
            client.on_session_lost(lambda: losses.append(first))
            await client._stop_working()
            async with connected(quorum) as watcher:
                await wait_until_gone(watcher, first, 10)
            client._task = asyncio.create_task(client._work_with_leaders(first, 300))
            await async_wait_until(lambda: losses, "word of the lost session", timeout_s=10)
            with pytest.raises(SessionLost):
                await write(client)
            await client.renew_session()
            assert client.session_id != first
            await write(client)
            assert losses == [first]
