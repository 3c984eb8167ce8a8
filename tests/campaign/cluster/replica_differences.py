"""Compares what stopped brokers hold of the same partitions, byte for byte."""

import asyncio
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from quorate.broker.common.errors import KafkaError
from quorate.broker.log import LogCallbacks, LogManager, LogOptions
from tests.campaign.trial import in_child, value_of
from tests.support.stored_logs import Batches, batches_of

_LIMIT_S = 60.0
_ROOT = Path(__file__).parents[3]


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


Compare = Callable[[Sequence[Path], Mapping[str, int]], Differences]


@contextmanager
def comparing_process() -> Iterator[Compare]:
    """Give ``differences`` to a process that has threads, as every process with a gRPC connection
    does: it is called in a process that has loaded the code of a log, and that ends with this one.
    """
    command = [sys.executable, "-m", "tests.campaign.cluster.replica_differences"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, cwd=_ROOT
    ) as process:
        requests, answers = process.stdin, process.stdout
        assert requests is not None
        assert answers is not None

        def compare(folders: Sequence[Path], ends: Mapping[str, int]) -> Differences:
            requests.write(json.dumps([[str(folder) for folder in folders], ends]) + "\n")
            answer = answers.readline()
            assert answer, "the process that compares folders has failed, and said why"
            return Differences(*json.loads(answer))

        yield compare


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
    """Compare the folders below the ends that each line of standard input names, in JSON; print a
    line with the result."""
    for line in sys.stdin:
        folders, ends = json.loads(line)
        sys.stdout.write(json.dumps(differences([Path(folder) for folder in folders], ends)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
