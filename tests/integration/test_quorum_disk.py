"""The disk fails a voter: full, read-only, damaged. It stops and says why; the others go on (P10).

Root may write everywhere: where it runs the tests, it gives up that privilege for the voter.
"""

import asyncio
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from quorate.quorum.raft.snapshot_store import SNAPSHOT_FILE
from quorate.quorum.raft.storage.lmdb_journal import JOURNAL_FILE
from tests.integration.quorum_writes import Writer, image_now, write
from tests.support.disk_faults import cut, flip, without_privileges
from tests.support.quorum_cluster import QuorumCluster, connected

pytestmark = pytest.mark.integration

COMPACTING = {
    "metadata.log.max.records.between.snapshots": 100,
    "metadata.log.retained.records": 20,
}


def run_voter(config: Path, under: Sequence[str] = ()) -> tuple[int, str]:
    """Exit code, and the line for people, of a voter that is expected to refuse."""
    done = subprocess.run(
        [*under, sys.executable, "-m", "quorate.quorum", str(config)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, complaint(done.stderr)


def complaint(text: str) -> str:
    lines = [line for line in text.splitlines() if line.startswith("quorate quorum voter: ")]
    assert len(lines) == 1, text
    return lines[0]


async def wait_for_exit(quorum: QuorumCluster, voter_id: int) -> int:
    return await asyncio.to_thread(quorum.wait_for_exit, voter_id)


@pytest.mark.parametrize("leads", [False, True], ids=["follower", "leader"])
async def test_p10_full_disk_stops_the_voter_and_loses_nothing(tmp_path: Path, leads: bool) -> None:
    """The file-size limit fails writes as a full disk does."""
    with QuorumCluster(tmp_path) as quorum:
        async with connected(quorum) as client:
            leader = quorum.wait_for_leader()
            victim = leader if leads else next(v for v in quorum.voter_ids if v != leader)
            writers = [Writer(client) for _ in range(20)]
            journal = quorum.data_dir(victim) / JOURNAL_FILE
            limit = journal.stat().st_size + (64 << 10)
            resource.prlimit(quorum.processes[victim].pid, resource.RLIMIT_FSIZE, (limit, limit))
            assert await wait_for_exit(quorum, victim) == 1
            said = complaint(quorum.log_text(victim))
            assert f"cannot write journal {journal}" in said
            assert "Free space" in said
            await writers[0].wait_for_more()
            for writer in writers:
                await writer.stop()
            acknowledged = {key for writer in writers for key in writer.acknowledged}
            acknowledged |= set(await write(client, 50))
            assert acknowledged <= set((await image_now(client)).sessions)
            # With space again it is as good as before: another may go instead.
            quorum.start(victim)
            other = next(v for v in quorum.voter_ids if v != victim)
            offset = await client.read_offset()
            await asyncio.to_thread(quorum.wait_until_applied, victim, offset)
            quorum.kill(other)
            acknowledged |= set(await write(client, 20))
            assert acknowledged <= set((await image_now(client)).sessions)


async def test_p11_snapshot_that_cannot_be_written_stops_the_voter(tmp_path: Path) -> None:
    with QuorumCluster(tmp_path, settings=COMPACTING) as quorum:
        async with connected(quorum) as client:
            leader = quorum.wait_for_leader()
            victim = next(v for v in quorum.voter_ids if v != leader)
            scratch = quorum.data_dir(victim) / f"{SNAPSHOT_FILE}.writing"
            scratch.mkdir()
            acknowledged = await write(client, 300)
            assert await wait_for_exit(quorum, victim) == 1
            said = complaint(quorum.log_text(victim))
            assert f"cannot write snapshot {scratch}" in said
            acknowledged |= await write(client, 20)
            assert set(acknowledged) <= set((await image_now(client)).sessions)


@pytest.mark.parametrize("what", ["journal", "folder"])
def test_p10_read_only_disk_is_refused_at_the_start(tmp_path: Path, what: str) -> None:
    quorum = QuorumCluster(tmp_path, voters=1)
    with quorum:
        quorum.stop(1)
    folder = quorum.data_dir(1)
    read_only = folder / JOURNAL_FILE if what == "journal" else folder
    for path in [read_only] if what == "journal" else [*folder.iterdir(), folder]:
        path.chmod(path.stat().st_mode & ~0o222)
    try:
        code, said = run_voter(quorum.write_config(1), without_privileges())
    finally:
        folder.chmod(0o755)
    assert code == 1
    assert str(read_only) in said
    assert "Permission denied" in said


async def test_p10_p11_damaged_voter_is_refused_and_the_others_go_on(tmp_path: Path) -> None:
    with QuorumCluster(tmp_path, settings=COMPACTING) as quorum:
        async with connected(quorum) as client:
            leader = quorum.wait_for_leader()
            victim = next(v for v in quorum.voter_ids if v != leader)
            acknowledged = dict(await write(client, 250))
            newest = next(iter(await write(client)))
            offset = await client.read_offset()
            await asyncio.to_thread(quorum.wait_until_applied, victim, offset)
            quorum.stop(victim)
            config = quorum.write_config(victim)
            folder = quorum.data_dir(victim)
            whole = tmp_path / "whole"
            folder.rename(whole)
            journal, snapshot = folder / JOURNAL_FILE, folder / SNAPSHOT_FILE
            damages: list[tuple[str, Path, Callable[[], object]]] = [
                ("checksum is wrong", journal, lambda: flip(journal, newest)),
                ("truncated", journal, lambda: cut(journal, 5 * 4096)),
                ("is missing", journal, journal.unlink),
                ("truncated", snapshot, lambda: cut(snapshot, snapshot.stat().st_size - 1)),
                ("there is no snapshot", snapshot, snapshot.unlink),
            ]
            for expected, file, damage in damages:
                shutil.copytree(whole, folder)
                damage()
                code, said = await asyncio.to_thread(run_voter, config)
                assert (code, expected in said) == (1, True), said
                assert file.name in said
                acknowledged |= await write(client, 5)
                shutil.rmtree(folder)
            whole.rename(folder)
            quorum.start(victim)
            offset = await client.read_offset()
            await asyncio.to_thread(quorum.wait_until_applied, victim, offset)
            assert set(acknowledged) <= set((await image_now(client)).sessions)
