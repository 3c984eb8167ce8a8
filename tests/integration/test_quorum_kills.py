"""Voters are killed and paused at random, with compaction on; nothing that was answered is a lie.

Clients write, compare-and-set, read and watch all the while. Afterwards the log, as watchers saw
it, is held against every answer: nothing acknowledged is lost, nothing is applied twice, outcomes
that were unknown are resolved by the log, the history is linearizable (by offsets, and register by
register without them), no watcher skipped or repeated anything over reconnects and snapshots, and
all voters have the image that the log makes.

A failure names its seed and faults; ``QUORATE_KILL_SEED=…`` repeats the faults (not their timing:
these are real processes), ``QUORATE_KILL_FAULTS=…`` sets how many the long form has.
"""

import asyncio
import os
import random
import secrets
import time
from collections import defaultdict
from pathlib import Path

import pytest

from quorate.common.types import MetadataOffset
from quorate.metadata_log.image import Image
from quorate.metadata_log.snapshot.snapshot import decode_snapshot
from quorate.quorum.voter_channels import open_channel, stub_of
from quorate_proto.v1 import quorum_pb2 as pb
from tests.support.history import Kind, Op, check_against_log, check_watch
from tests.support.linearizability import is_linearizable
from tests.support.quorum_chaos import QuorumChaos
from tests.support.quorum_cluster import QuorumCluster, connected
from tests.support.quorum_load import QuorumLoad, prepare
from tests.support.quorum_watchers import Watcher, replay
from tests.support.waiting import async_wait_until

pytestmark = pytest.mark.integration

SETTINGS = {
    "metadata.log.max.records.between.snapshots": 150,
    "metadata.log.retained.records": 300,
}
FAULTS = int(os.environ.get("QUORATE_KILL_FAULTS", "330"))
LEAST_KILLS = 200
LEAST_ACKNOWLEDGED = 20_000


def new_seed() -> int:
    return int(os.environ.get("QUORATE_KILL_SEED", secrets.randbelow(1 << 32)))


async def test_d1_d4_kills_and_pauses_lose_nothing(tmp_path: Path) -> None:
    await run(tmp_path, new_seed(), faults=6)


@pytest.mark.slow
@pytest.mark.timeout(1_800)
async def test_d1_d4_two_hundred_kills_lose_nothing(tmp_path: Path) -> None:
    """With mutual TLS, as a quorum is deployed."""
    figures = await run(tmp_path, new_seed(), faults=FAULTS, secure=True)
    if "QUORATE_KILL_FAULTS" not in os.environ:
        assert figures["kills"] >= LEAST_KILLS
        assert figures["acknowledged"] >= LEAST_ACKNOWLEDGED


async def run(folder: Path, seed: int, faults: int, secure: bool = False) -> dict[str, float]:
    started = time.monotonic()
    with QuorumCluster(folder, settings=SETTINGS, secure=secure) as quorum:
        async with connected(quorum) as client:
            await prepare(client)
        load = QuorumLoad(quorum.addresses, seed, 4, 4, quorum.security)
        # One at each voter: whoever is killed or paused, another sees the log go on.
        keepers = [
            Watcher(f"watcher at {each}", [each], quorum.security) for each in quorum.addresses
        ]
        sleepers = [
            Watcher(f"sleeper {n}", quorum.addresses, quorum.security, random.Random(seed + n))
            for n in range(2)
        ]
        for watcher in (*keepers, *sleepers):
            watcher.start()
        await load.start()
        chaos = QuorumChaos(quorum, seed, lambda: load.acknowledged)
        try:
            await chaos.run(faults)
            load.check_running()
            figures = await check(quorum, load, [*load.watchers, *keepers, *sleepers])
        except BaseException as error:
            error.add_note(f"seed {seed}; faults: {'; '.join(chaos.notes)}")
            raise
        finally:
            await load.abandon()
            for watcher in (*load.watchers, *keepers, *sleepers):
                await watcher.stop()
    figures |= {
        "kills": chaos.kills,
        "killed": chaos.killed,
        "pauses": chaos.pauses,
        "seconds": round(time.monotonic() - started),
    }
    print(f"seed {seed}: {figures}")  # noqa: T201 - what the long run is quoted by
    return figures


async def check(
    quorum: QuorumCluster, load: QuorumLoad, watchers: list[Watcher]
) -> dict[str, float]:
    """Stop everybody, and hold what they were told against the log."""
    await load.stop()
    async with connected(quorum) as client:
        last_offset = await client.read_offset()
    async with asyncio.timeout(60):
        for watcher in watchers:
            await watcher.reached(last_offset)
    images = {each: await image_at(quorum, each, last_offset) for each in quorum.addresses}
    log = replay(watchers, MetadataOffset(max(image.offset for image in images.values())))
    verdict = check_against_log(load.ops, log.effects)
    violations = log.violations + verdict.violations
    violations += [
        f"{watcher.name}: {what}"
        for watcher in watchers
        for what in check_watch(watcher.seen, log.offsets)
    ]
    violations += [f"{key} is not linearizable" for key in not_linearizable(load.ops)]
    violations += [
        f"the image of {each} differs" for each, image in images.items() if image != log.image
    ]
    assert not violations, "\n".join([f"{len(violations)} violations", *violations[:20]])
    return {
        "acknowledged": load.acknowledged,
        "reads": sum(op.kind is Kind.READ for op in load.ops),
        "unknown and applied": verdict.resolved,
        "lost": verdict.lost,
        "twice": verdict.twice,
        "watches": sum(watcher.connections for watcher in watchers),
        "snapshots watched": sum(len(watcher.snapshots) for watcher in watchers),
    }


async def image_at(quorum: QuorumCluster, address: str, offset: MetadataOffset) -> Image:
    """The voter's image once it has everything up to ``offset``."""
    async with open_channel(address, quorum.security) as channel:

        async def has_applied() -> bool:
            status = await stub_of(channel).QuorumStatus(pb.QuorumStatusRequest(), timeout=10)
            return status.applied_offset >= offset

        await async_wait_until(has_applied, f"{address} to apply {offset}", timeout_s=30)
        request = pb.ReadRequest(include_image=True)
        answer = await stub_of(channel).Read(request, timeout=10)
        return decode_snapshot([answer.snapshot])


def not_linearizable(ops: list[Op]) -> list[str]:
    registers: dict[str, list[Op]] = defaultdict(list)
    for op in ops:
        if op.kind in (Kind.CAS, Kind.READ):
            registers[op.key].append(op)
    return [key for key, calls in registers.items() if not is_linearizable(calls)]
