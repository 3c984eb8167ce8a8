"""Recording runs of the load, and losing the power in them."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from quorate.broker.log.options import Flush
from quorate.broker.log.writing.disk_space import RESERVE_FILE
from tests.support.power_loss.disk import RecordedDisk
from tests.support.power_loss.events import Kind, Recording, is_recorded
from tests.support.waiting import let_time_pass

_PROJECT: Final = Path(__file__).parents[3]
_MEMORY: Final = Path("/dev/shm")
_MEMORY_BYTES: Final = 512 << 20
"""Room for images; they need no disk, and are opened faster without one."""
_FOR_EVER: Final = 1 << 30


class Failure(NamedTuple):
    """A problem that was found after a power loss before the event ``point``."""

    point: int
    problem: str


def record(
    recording: Recording,
    flush: Flush,
    *,
    seed: int,
    steps: int,
    kills: int = 0,
    boot: str = "the first boot",
    mutant: str = "",
) -> None:
    """Kill the load ``kills`` times, then let it do its ``steps`` and end."""
    chance = random.Random(seed)
    for run in range(kills + 1):
        length = steps if run == kills else _FOR_EVER
        arguments = [recording.root / "log", recording.marks, flush, seed + run, length, boot]
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.power_loss.load", *map(str, arguments), mutant],
            cwd=_PROJECT,
            env=recording.environment(),
        )
        if run == kills:
            assert process.wait(110) == 0
            return
        seen = recording.log.stat().st_size if recording.log.exists() else 0
        wanted = seen + chance.randrange(100_000, 2_000_000)
        while process.poll() is None and _size(recording.log) < wanted:
            let_time_pass(0.0005, "a kill comes at any byte")
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL, "the load ended before it was killed"
        recording.note_kill()


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def failures(
    recording: Recording, flush: Flush, *, seed: int, points: int, mutant: str = ""
) -> list[Failure]:
    """Lose the power at so many points of the run."""
    with _room_for_images() as images:
        found = subprocess.run(
            [
                *[sys.executable, "-m", "tests.support.power_loss.explore"],
                *[str(recording.root.parent), str(images), flush, str(seed), mutant, str(points)],
            ],
            cwd=_PROJECT,
            capture_output=True,
            text=True,
            check=False,
        )
    lines = [json.loads(line) for line in found.stdout.splitlines()]
    failed = [Failure(**line) for line in lines if "problem" in line]
    if found.returncode < 0:
        name = signal.Signals(-found.returncode).name
        failed.append(Failure(lines[-1]["point"], f"{name} ended the process that opened it"))
    else:
        assert found.returncode == 0, found.stderr
        tried = sum("problem" not in line for line in lines)
        assert tried == points, f"only {tried} of {points} points were there to try"
    return failed


def replayed_wrongly(recording: Recording) -> list[str]:
    """Files that are not what the recorded writes come to: something was not recorded."""
    disk = RecordedDisk(recording.before if recording.before.exists() else None)
    kills = dict(recording.kills())
    for number, event in enumerate(recording.read()):
        if number in kills:
            disk.killed(kills[number])
        if event.kind is not Kind.MARK:
            disk.replay(event)
    found = dict(disk.files())
    left = [path for path in recording.root.rglob("*") if path.is_file()]
    names = {path.relative_to(recording.root) for path in left if is_recorded(path)}
    wrong = names.symmetric_difference(found)
    wrong.update(
        path
        for path in names & found.keys()
        # Of the reserve the blocks count, whatever is in them.
        if path.name != RESERVE_FILE
        and (recording.root / path).read_bytes() != found[path].visible()
    )
    return sorted(map(str, wrong))


@contextmanager
def _room_for_images() -> Iterator[Path]:
    has_room = _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > _MEMORY_BYTES
    usable = has_room and os.access(_MEMORY, os.W_OK)
    with tempfile.TemporaryDirectory(dir=_MEMORY if usable else None) as folder:
        yield Path(folder)
