"""Loses the power at many points of a recorded run, and checks what is left of the store.

Run with ``python -m`` in a process of its own, which a damaged file may end; arguments: the folder
of the recording, one for images, ``log.flush``, seed, the name of a mutant or nothing, and either
how many points or ``at`` and one of them. A line of JSON goes out before a point is tried, and one
after it if it failed.
"""

import copy
import json
import pickle
import random
import shutil
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from quorate.broker.log.options import Flush
from tests.support.power_loss.disk import RecordedDisk
from tests.support.power_loss.events import Event, Kind, Recording
from tests.support.power_loss.mutants import opening
from tests.support.power_loss.promises import Promises, Said
from tests.support.power_loss.verification import check

_THOROUGHLY_EVERY: Final = 3
_OPENING: Final = 60
"""About as many events are recorded while a store opens."""


class Replay:
    """A recorded run up to some event."""

    def __init__(self, recording: Recording, flush: Flush) -> None:
        is_first = not recording.before.exists()
        self.disk = RecordedDisk(None if is_first else recording.before)
        self.promises = Promises(flush)
        if not is_first:
            self.promises = pickle.loads(recording.promises.read_bytes())
        self._kills = dict(recording.kills())

    def step(self, number: int, event: Event) -> None:
        if number in self._kills:
            self.disk.killed(self._kills[number])
        if event.kind is Kind.MARK:
            self.promises.note(msgspec.json.decode(event.data, type=Said))
        else:
            self.disk.replay(event)


def replays(recording: Recording, flush: Flush, points: set[int]) -> Iterator[tuple[int, Replay]]:
    """The run before each of ``points``, numbers of events."""
    replay = Replay(recording, flush)
    for number, event in enumerate(recording.read()):
        if number in points:
            yield number, replay
        replay.step(number, event)


def chosen_points(recording: Recording, chance: random.Random, wanted: int) -> set[int]:
    """Events anywhere, and every other one while a process opens what there is."""
    events = range(sum(1 for _ in recording.read()))
    ends = [0, *(number for number, _ in recording.kills())]
    soon = [event for end in ends for event in events[end : end + _OPENING]]
    points = set(chance.sample(soon, min(len(soon), wanted // 2)))
    rest = [event for event in events if event not in points]
    return points.union(chance.sample(rest, min(len(rest), wanted - len(points))))


def continue_after(
    recording: Recording, flush: Flush, chance: random.Random, following: Recording
) -> None:
    """Lose the power at one point, and have ``following`` begin with what is left."""
    (point,) = chosen_points(recording, chance, 1)
    for _, replay in replays(recording, flush, {point}):
        replay.disk.lose_power(following.root, chance)
        following.promises.write_bytes(pickle.dumps(replay.promises))
    shutil.copytree(following.root, following.before)


def explore(recording: Recording, images: Path, flush: Flush, seed: int, points: set[int]) -> None:
    image = images / "image"
    for tried, (point, replay) in enumerate(replays(recording, flush, points)):
        print(json.dumps({"point": point}), flush=True)  # noqa: T201
        shutil.rmtree(image, ignore_errors=True)
        image.mkdir()
        replay.disk.lose_power(image, random.Random(f"{seed} {point}"))
        thoroughly = tried % _THOROUGHLY_EVERY == 0 or len(points) == 1
        try:
            promises = copy.deepcopy(replay.promises)
            check(image / "log", flush, promises, thoroughly=thoroughly)
        except Exception:  # noqa: BLE001 - whatever it is, the store did not survive
            print(json.dumps({"point": point, "problem": traceback.format_exc()}), flush=True)  # noqa: T201


def main() -> None:
    folder, images, mode, seed, mutant, *wanted = sys.argv[1:]
    recording = Recording.at(Path(folder))
    flush: Flush = "sync" if mode == "sync" else "os"
    if wanted[0] == "at":
        points = {int(wanted[1])}
    else:
        points = chosen_points(recording, random.Random(int(seed)), int(wanted[0]))
    with opening(mutant):
        explore(recording, Path(images), flush, int(seed), points)


if __name__ == "__main__":
    main()
