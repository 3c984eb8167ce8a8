"""Compares what stopped brokers hold of the same partitions, byte for byte."""

import asyncio
import json
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from quorate.broker.common.errors import KafkaError
from quorate.broker.log import LogCallbacks, LogManager, LogOptions
from tests.campaign.trial import in_child, value_of
from tests.support.stored_logs import Batches, batches_of

_LIMIT_S = 60.0


class Differences(NamedTuple):
    """The faults that were found in the replicas of several brokers."""

    unreadable: Sequence[int]
    """The positions of the folders with batches that are damaged: such a batch is not served, and
    the first reader has it fetched again."""
    differing: Sequence[str]


def differences(folders: Sequence[Path], ends: Mapping[str, int]) -> Differences:
    """Return the differences between the copies of each partition, below its end in ``ends``.

    Partitions are named ``<topic id in hex>-<number>``. The folders are not changed. The caller has
    one thread.
    """
    with tempfile.TemporaryDirectory(prefix="quorate-differences-") as work:
        copies = []
        for number, folder in enumerate(folders):
            copies.append(Path(work) / str(number))
            shutil.copytree(folder, copies[-1])
        said = Path(work) / "said.txt"
        return value_of(in_child(lambda: _compared(copies, ends), _LIMIT_S, said))


class _Copy(NamedTuple):
    """One log: its batches, and the high watermark that the replica knows for certain."""

    batches: Batches
    high_watermark: int


def _compared(copies: Sequence[Path], ends: Mapping[str, int]) -> Differences:
    read: list[dict[str, _Copy]] = []
    unreadable = []
    for number, copy in enumerate(copies):
        try:
            read.append(asyncio.run(_logs(copy)))
        except KafkaError:
            unreadable.append(number)
    differing: list[str] = []
    for name, end in ends.items():
        logs = [copy[name] for copy in read if name in copy]
        differing += _differing(name, logs, len(read), end)
    return Differences(unreadable, differing)


async def _logs(folder: Path) -> dict[str, _Copy]:
    callbacks = LogCallbacks(lambda _: None, lambda _: None)
    store = await LogManager.open(folder, LogOptions(), callbacks)
    try:
        return {
            f"{tip.topic_id.hex()}-{tip.partition}": _Copy(
                batches_of(log), log.checkpointed_high_watermark
            )
            for tip, log in store.logs.items()
        }
    finally:
        await store.close()


def _differing(name: str, logs: Sequence[_Copy], wanted: int, end: int) -> list[str]:
    """Compare the copies of one partition with the first that reaches furthest, below both high
    watermarks: beyond its own, a replica that has left the ISR may have anything."""
    told = [] if len(logs) == wanted else [f"{name}: {wanted - len(logs)} copies are missing"]
    furthest = max(logs, key=lambda log: log.high_watermark, default=_Copy({}, 0))
    for log in logs:
        start = max(min(log.batches, default=0), min(furthest.batches, default=0))
        beyond = min(log.high_watermark, furthest.high_watermark, end)
        one, other = (
            {at: data for at, data in copy.batches.items() if start <= at < beyond}
            for copy in (log, furthest)
        )
        differing = sorted(at for at, _ in one.items() ^ other.items())
        if differing:
            told.append(f"{name}: copies differ from offset {differing[0]} to {beyond}")
    return told


def main() -> None:
    """Compare the folders below the ends that standard input names, in JSON; print the result."""
    folders, ends = json.load(sys.stdin)
    sys.stdout.write(json.dumps(differences([Path(folder) for folder in folders], ends)))


if __name__ == "__main__":
    main()
