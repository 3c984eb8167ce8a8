"""Voters come, go, lose their disks and hand over, as real processes under a load of writes."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from quorate.common.types import SessionId
from quorate.metadata_log.records import Operation, QuorumVoterSet, ResultCode
from quorate.quorum.client.directory import VoterDirectory
from quorate.quorum.client.quorum_client import QuorumClient
from quorate.quorum.operations.admin import QuorumAdmin
from quorate.quorum.quorum_config import parse_voters
from quorate.quorum.quorum_errors import ChangeNotMade, QuorumUnavailable
from quorate.quorum.raft.storage.lmdb_journal import JOURNAL_FILE
from quorate_proto.v1 import quorum_pb2 as pb
from tests.integration.quorum_writes import Writer, image_now, write
from tests.support.cli import quorate, quorate_error, quorate_json
from tests.support.quorum_cluster import QuorumCluster, connected
from tests.support.waiting import async_wait_until

pytestmark = pytest.mark.integration

TIMEOUT_S = 30.0
WRITERS = 4


@contextlib.asynccontextmanager
async def administration(
    quorum: QuorumCluster,
    timeout_s: float = TIMEOUT_S,
    patience_s: float = TIMEOUT_S,
    on_wait: Callable[[str], None] = lambda why: None,
) -> AsyncIterator[QuorumAdmin]:
    directory = VoterDirectory(quorum.addresses, quorum.security)
    try:
        yield QuorumAdmin(directory, timeout_s, patience_s=patience_s, on_wait=on_wait)
    finally:
        await directory.close()


async def add(admin: QuorumAdmin, quorum: QuorumCluster, voter_id: int) -> list[str]:
    """Add a voter; what was said on the way."""
    said: list[str] = []
    (voter,) = parse_voters(quorum.as_voter(voter_id))
    await admin.add_voter(voter, lambda progress: said.append(progress.detail))
    return said


async def voters(admin: QuorumAdmin) -> dict[int, pb.VoterStatus]:
    return {voter.voter_id: voter for voter in (await admin.status()).voters}


async def log_says(quorum: QuorumCluster, voter_id: int, text: str) -> None:
    await async_wait_until(
        lambda: text in quorum.log_text(voter_id),
        lambda: f"{text!r} in:\n{quorum.log_text(voter_id)}",
        timeout_s=TIMEOUT_S,
    )


async def gone(quorum: QuorumCluster, voter_id: int) -> int:
    """The exit code of a voter that ends by itself."""
    return await asyncio.to_thread(quorum.wait_for_exit, voter_id)


@contextlib.asynccontextmanager
async def load(client: QuorumClient) -> AsyncIterator[list[Writer]]:
    """Writes all along; at the end everything acknowledged is there."""
    writers = [Writer(client) for _ in range(WRITERS)]
    yield writers
    for writer in writers:
        await writer.stop()
    acknowledged: set[SessionId] = set()
    for writer in writers:
        assert writer.acknowledged
        acknowledged |= set(writer.acknowledged)
    assert acknowledged <= set((await image_now(client)).sessions)


@pytest.mark.slow
async def test_a_quorum_grows_and_shrinks_under_load_and_nothing_is_lost(tmp_path: Path) -> None:
    with QuorumCluster(
        tmp_path,
        secure=True,
        settings={
            "metadata.log.max.records.between.snapshots": 500,
            "metadata.log.retained.records": 100,
        },
    ) as quorum:
        async with connected(quorum) as client, administration(quorum) as admin:
            await write(client, 700)
            async with load(client) as writers:
                for expected in (4, 5):
                    new = quorum.start_new()
                    assert new == expected
                    assert (await add(admin, quorum, new))[-1] == "it is a voter"
                    assert "installing snapshot" in quorum.log_text(new)
                assert [v.observer for v in (await voters(admin)).values()] == [False] * 5
                for _ in range(2):
                    leader = (await admin.status()).leader_id
                    await admin.remove_voter(leader)
                    assert await gone(quorum, leader) == 0
                    assert f"voter {leader} was removed from the quorum" in quorum.log_text(leader)
                    quorum.forget(leader)
                left = await voters(admin)
                assert sorted(left) == quorum.voter_ids
                assert len(left) == 3
                assert max(writer.longest_gap_s for writer in writers) < 5
            # The files still name voters 1 to 3 (and 4, 5): the committed set rules.
            for voter_id in quorum.voter_ids:
                assert quorum.stop(voter_id) == 0
            await asyncio.to_thread(quorum.start_all)
            async with load(client) as writers:
                await writers[0].wait_for_more()
            assert sorted(await voters(admin)) == quorum.voter_ids
            for voter_id in quorum.voter_ids:
                assert "differs from the committed voter set" in quorum.log_text(voter_id)


async def test_a_wiped_voter_is_refused_and_can_be_replaced(tmp_path: Path) -> None:
    with QuorumCluster(tmp_path) as quorum:
        async with connected(quorum) as client, administration(quorum) as admin, load(client):
            quorum.kill(3)
            quorum.wipe(3)
            quorum.start(3)
            assert await gone(quorum, 3) == 1
            refused = quorum.log_text(3)
            for words in ("had data before", "was wiped or replaced", "remove-voter 3"):
                assert words in refused

            await admin.remove_voter(3)
            quorum.start(3)
            await log_says(quorum, 3, f"quorate quorum add-voter {quorum.as_voter(3)}")
            said = await add(admin, quorum, 3)
            assert said[-1] == "it is a voter"
            back = (await voters(admin))[3]
            assert back.directory_id.hex() in (quorum.data_dir(3) / "identity.json").read_text()

            quorum.kill(3)
            (quorum.data_dir(3) / JOURNAL_FILE).unlink()
            quorum.start(3)
            assert await gone(quorum, 3) == 1
            assert f"{JOURNAL_FILE} is missing" in quorum.log_text(3)


async def a_removal_waits_for_a_voter_to_start(quorum: QuorumCluster) -> None:
    """Voter 3 does not run."""
    waits = asyncio.Event()
    async with administration(quorum, on_wait=lambda _why: waits.set()) as admin:
        removing = asyncio.create_task(admin.remove_voter(2))
        await asyncio.wait_for(waits.wait(), TIMEOUT_S)
        assert sorted(await voters(admin)) == [1, 2, 3]
        quorum.start(3)
        await removing
        assert sorted(await voters(admin)) == [1, 3]


@pytest.mark.slow
async def test_a_voter_that_missed_its_removal_is_told(tmp_path: Path) -> None:
    with QuorumCluster(tmp_path, voters=4) as quorum:
        async with administration(quorum) as admin:
            for missed in (1, 3):  # One that dials nobody of itself, and one that does.
                quorum.kill(missed)
                await admin.remove_voter(missed)
                quorum.start(missed)
                assert await gone(quorum, missed) == 0
                assert f"voter {missed} was removed from the quorum" in quorum.log_text(missed)
            await admin.remove_voter(4)
            assert await gone(quorum, 4) == 0
            assert sorted(await voters(admin)) == [2]
            with pytest.raises(ChangeNotMade, match="voter 2 is the last one"):
                await admin.remove_voter(2)


async def test_changes_that_would_hurt_are_refused(tmp_path: Path) -> None:
    with QuorumCluster(tmp_path) as quorum:
        async with connected(quorum) as client, administration(quorum, patience_s=1) as admin:
            quorum.kill(3)
            await asyncio.to_thread(quorum.wait_for_leader)
            with pytest.raises(ChangeNotMade, match=r"2 voters of which only 1 .* start voter 3"):
                await admin.remove_voter(2)
            with pytest.raises(ChangeNotMade, match="voter 9 is not in the quorum: it has 1, 2, 3"):
                await admin.remove_voter(9)
            for taken, why in (
                ("3@127.0.0.1:1/2", "voter 3 exists already"),
                (quorum.as_voter(2).replace("2@", "7@"), "is the address of voter 2"),
                ("7@192.0.2.1:1/2", "loopback addresses only"),
            ):
                (voter,) = parse_voters(taken)
                with pytest.raises(ChangeNotMade, match=why):
                    await admin.add_voter(voter, lambda _progress: None)
            await one_change_at_a_time(admin, quorum)
            record = QuorumVoterSet(expected_version=1, voters=())
            result = await client.transact([Operation(records=(record,))])
            assert result.results[0].code is ResultCode.INVALID
        await a_removal_waits_for_a_voter_to_start(quorum)


async def one_change_at_a_time(admin: QuorumAdmin, quorum: QuorumCluster) -> None:
    """Voter 7 does not run: adding it waits; it can be given up."""
    (absent,) = parse_voters("7@127.0.0.1:1/2")
    waits = asyncio.Event()

    def told(progress: pb.AddVoterProgress) -> None:
        if "waiting for voter 7 to connect" in progress.detail:
            waits.set()

    adding = asyncio.create_task(admin.add_voter(absent, told))
    await asyncio.wait_for(waits.wait(), TIMEOUT_S)
    async with administration(quorum, patience_s=1) as other:
        with pytest.raises(ChangeNotMade, match=r"under way \(adding voter 7\)"):
            await other.remove_voter(3)
        adding.cancel()
        await asyncio.gather(adding, return_exceptions=True)
        (eighth,) = parse_voters("8@127.0.0.1:3/4")
        with pytest.raises(ChangeNotMade, match="voter 7 is still being added"):
            await other.add_voter(eighth, lambda _progress: None)
        assert (await voters(other))[7].observer
        await other.remove_voter(7)
        assert sorted(await voters(other)) == [1, 2, 3]


async def test_the_leadership_is_handed_over_under_load(tmp_path: Path) -> None:
    with QuorumCluster(tmp_path) as quorum:
        async with connected(quorum) as client, administration(quorum) as admin:
            async with load(client) as writers:
                await writers[0].wait_for_more()
                for target in (1, 2, 3, 1):
                    for writer in writers:
                        writer.reset_gap()
                    term = await admin.transfer_leadership(target)
                    status = await admin.status()
                    assert (status.leader_id, status.term) == (target, term)
                assert all(writer.uncertain == 0 for writer in writers)
            where = ("--bootstrap-controller", quorum.bootstrap_servers)
            said = await asyncio.to_thread(quorate, "quorum", "transfer", "--to", "2", *where)
            assert said.startswith("voter 2 leads, term ")
            document = await asyncio.to_thread(quorate_json, "quorum", "status", *where)
            assert document["leader"] == 2
            assert [voter["role"] for voter in document["voters"]] == [
                "follower",
                "leader",
                "follower",
            ]
            assert all(voter["connected"] for voter in document["voters"])
            table = await asyncio.to_thread(quorate, "quorum", "status", *where)
            assert "leader     voter 2" in table
            error = await asyncio.to_thread(
                quorate_error, "quorum", "transfer", "--to", "9", *where
            )
            assert error == "quorate: voter 9 is not a voter of this quorum\n"


@pytest.mark.slow
async def test_the_first_start_needs_every_voter_and_no_later_one_does(tmp_path: Path) -> None:
    quorum = QuorumCluster(tmp_path)
    try:
        quorum.start(1)
        quorum.start(2)
        await log_says(quorum, 1, "waiting for voter 3 at 127.0.0.1")
        async with administration(quorum, timeout_s=0.5) as admin:
            with pytest.raises(QuorumUnavailable):
                await admin.remove_voter(3)
        quorum.start(3)
        await asyncio.to_thread(quorum.wait_for_leader)
        for voter_id in quorum.voter_ids:
            quorum.kill(voter_id)
        quorum.start(1)
        quorum.start(3)
        await asyncio.to_thread(quorum.wait_for_leader)
    finally:
        quorum.stop_all()
