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
from tests.campaign.trial import in_child, value_of
from tests.support.stored_logs import Batches, stored_batches

_LIMIT_S = 60.0


class Differences(NamedTuple):
    """What is wrong with the replicas of brokers."""

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


def _compared(copies: Sequence[Path], ends: Mapping[str, int]) -> Differences:
    read: list[dict[str, Batches]] = []
    unreadable = []
    for number, copy in enumerate(copies):
        try:
            stored = asyncio.run(stored_batches(copy))
        except KafkaError:
            unreadable.append(number)
            continue
        read.append({f"{t.topic_id.hex()}-{t.partition}": found for t, found in stored.items()})
    differing: list[str] = []
    for name, end in ends.items():
        logs = [copy[name] for copy in read if name in copy]
        differing += _differing(name, logs, len(read), end)
    return Differences(unreadable, differing)


def _differing(name: str, logs: Sequence[Batches], wanted: int, end: int) -> list[str]:
    """Compare the copies of one partition from where the latest of them begins to where the first
    of them ends: a replica that has left the ISR may be behind."""
    told = [] if len(logs) == wanted else [f"{name}: {wanted - len(logs)} copies are missing"]
    start = max((min(log, default=0) for log in logs), default=0)
    beyond = min((max(log, default=-1) + 1 for log in logs), default=0)
    cut = [{at: data for at, data in log.items() if start <= at < min(beyond, end)} for log in logs]
    for log in cut[1:]:
        differing = sorted(at for at, _ in cut[0].items() ^ log.items())
        if differing:
            told.append(f"{name}: copies differ from offset {differing[0]} on")
    return told


def main() -> None:
    """Compare the folders below the ends that standard input names, in JSON; print the result."""
    folders, ends = json.load(sys.stdin)
    sys.stdout.write(json.dumps(differences([Path(folder) for folder in folders], ends)))


if __name__ == "__main__":
    main()
