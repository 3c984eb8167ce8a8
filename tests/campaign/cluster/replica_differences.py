"""Compares what stopped brokers hold of the same partitions, byte for byte."""

import asyncio
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.campaign.trial import in_child, value_of
from tests.support.stored_logs import Batches, stored_batches

_LIMIT_S = 60.0


def differences(folders: Sequence[Path], ends: Mapping[str, int]) -> list[str]:
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
        return list(value_of(in_child(lambda: _compared(copies, ends), _LIMIT_S, said)))


def _compared(copies: Sequence[Path], ends: Mapping[str, int]) -> Sequence[str]:
    read = [
        {f"{tip.topic_id.hex()}-{tip.partition}": batches for tip, batches in stored.items()}
        for stored in (asyncio.run(stored_batches(copy)) for copy in copies)
    ]
    told: list[str] = []
    for name, end in ends.items():
        told += _differing(name, [copy[name] for copy in read if name in copy], len(read), end)
    return told


def _differing(name: str, logs: Sequence[Batches], wanted: int, end: int) -> list[str]:
    """Compare the copies of one partition from where the latest of them begins."""
    told = [] if len(logs) == wanted else [f"{name}: {wanted - len(logs)} copies are missing"]
    start = max((min(log, default=0) for log in logs), default=0)
    cut = [{at: data for at, data in log.items() if start <= at < end} for log in logs]
    for log in cut[1:]:
        differing = sorted(at for at, _ in cut[0].items() ^ log.items())
        if differing:
            told.append(f"{name}: copies differ from offset {differing[0]} on")
    return told
