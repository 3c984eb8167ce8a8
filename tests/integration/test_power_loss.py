"""Power losses, replayed: what was acknowledged survives, and the log always opens.

A real store is recorded under load: rolls, truncations, new starts, deletions, kills, batches that
are copied out of old segments or written in place of others. Its writes are replayed on a disk that
loses its power at some point, with what was not synced by then lost, kept or torn page by page
(``tests.support.power_loss``).
"""

import random
from pathlib import Path

import pytest

from quorate.broker.log.options import Flush
from tests.support.power_loss.events import Recording, compiler
from tests.support.power_loss.explore import continue_after
from tests.support.power_loss.mutants import MUTANTS
from tests.support.power_loss.runs import failures, record, replayed_wrongly

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(compiler() is None, reason="the recorder needs a C compiler"),
]

OFTEN = {"copies replace before they are synced", "sync=False"}
"""The mutants that every run of the suite tries; the others are tried among the slow tests."""

_LONG = [pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.mark.parametrize(
    ("flush", "seed", "kills", "steps", "points"),
    [
        ("sync", 1, 3, 20, 25),
        ("os", 2, 1, 20, 12),
        pytest.param("sync", 3, 2, 100, 400, marks=_LONG),
        pytest.param("sync", 4, 20, 10, 400, marks=_LONG),
        pytest.param("os", 5, 2, 100, 400, marks=_LONG),
    ],
)
def test_acknowledged_batches_survive_a_power_loss(
    tmp_path: Path, flush: Flush, seed: int, kills: int, steps: int, points: int
) -> None:
    recording = Recording.begun(tmp_path)
    record(recording, flush, seed=seed, steps=steps, kills=kills)
    assert not replayed_wrongly(recording)
    failed = failures(recording, flush, seed=seed, points=points)
    assert not failed, f"{len(failed)} of {points} failed; the first: {failed[0]}"


@pytest.mark.parametrize(
    ("flush", "losses", "points"),
    [
        ("sync", 1, 10),
        ("os", 1, 10),
        pytest.param("sync", 10, 50, marks=_LONG),
        pytest.param("os", 10, 50, marks=_LONG),
    ],
)
def test_a_power_loss_while_the_last_one_is_dealt_with_takes_no_more(
    tmp_path: Path, flush: Flush, losses: int, points: int
) -> None:
    chance = random.Random(f"{flush} {losses}")
    recording = Recording.begun(tmp_path / "0")
    record(recording, flush, seed=20, steps=20)
    for loss in range(1, losses + 1):
        following = Recording.begun(tmp_path / str(loss))
        continue_after(recording, flush, chance, following)
        record(following, flush, seed=20 + loss, steps=10, boot=f"boot {loss}")
        assert not replayed_wrongly(following)
        failed = failures(following, flush, seed=loss, points=points)
        assert not failed, f"{len(failed)} of {points} failed; the first: {failed[0]}"
        recording = following


@pytest.mark.parametrize(
    "mutant",
    [
        pytest.param(mutant, marks=() if mutant in OFTEN else pytest.mark.slow)
        for mutant in sorted(MUTANTS)
    ],
)
def test_a_power_loss_brings_faults_to_light(tmp_path: Path, mutant: str) -> None:
    """In one of a few runs: what a load comes to depends on how its threads take turns."""
    flush = MUTANTS[mutant].flush
    for seed in range(6, 12):
        recording = Recording.begun(tmp_path / str(seed))
        record(recording, flush, seed=seed, steps=40, mutant=mutant)
        if failures(recording, flush, seed=seed, points=40, mutant=mutant):
            return
    raise AssertionError("no power loss brought it to light")
