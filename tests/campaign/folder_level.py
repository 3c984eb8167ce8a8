"""The folder level: damage a copy of one folder, open it in a child, and judge what it holds."""

import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

from tests.campaign.damage import OLD_FOLDER, carry_out, choose
from tests.campaign.node import DamagedNode, Undamaged
from tests.campaign.outcome import Case, Outcome, Verdict
from tests.campaign.trial import TrialOutcome, in_child

LIMIT_S = 20.0
"""The time after which a child that opens a folder hangs."""
_MEMORY = Path("/dev/shm")


def work_folder() -> Path:
    """Return a temporary folder, in memory where that can be: an fsync costs nothing there."""
    return Path(
        tempfile.mkdtemp(prefix="quorate-campaign-", dir=_MEMORY if _MEMORY.is_dir() else None)
    )


class FolderCampaign:
    """The cases of one node. ``work`` is a folder of its own."""

    def __init__(self, node: DamagedNode, work: Path, seed: int) -> None:
        self._node, self._work, self._seed = node, work, seed
        self.undamaged: Undamaged = node.build(work, seed)
        node.remember(work, self.undamaged)

    def run(self, numbers: Iterator[int] | range, keep: Path | None = None) -> Iterator[Case]:
        """Yield the cases of these numbers. ``keep`` takes the folders of the findings."""
        for number in numbers:
            case = self.run_one(number)
            if case.is_finding and keep is not None:
                self._keep(case, keep)
            yield case

    def run_one(self, number: int) -> Case:
        """Run one case, which depends on the seed and its number only."""
        chance = random.Random(f"{self._seed} {self._node.name} {number}")
        damage = choose(chance, self.undamaged.folder, self.undamaged.copies)
        folder = self._damaged_copy(number)
        carry_out(damage, folder, self.undamaged.copies)
        said = self._work / f"said-{number}.txt"
        ended = in_child(lambda: self._node.judge_damaged(folder, damage), LIMIT_S, said)
        for leftover in (folder, folder.with_name(f"{folder.name}-verified")):
            shutil.rmtree(leftover, ignore_errors=True)
        said.unlink(missing_ok=True)
        return Case(
            number=number,
            node=self._node.name,
            file=_without_digits(damage.file),
            kind=damage.kind,
            what=str(damage),
            verdict=_verdict(ended),
        )

    def _damaged_copy(self, number: int) -> Path:
        folder = self._work / f"case-{number}"
        shutil.copytree(self.undamaged.folder, folder)
        return folder

    def _keep(self, case: Case, keep: Path) -> None:
        """Put the damaged folder of a finding, as it was before it was opened, into ``keep``."""
        chance = random.Random(f"{self._seed} {self._node.name} {case.number}")
        damage = choose(chance, self.undamaged.folder, self.undamaged.copies)
        folder = keep / f"{self._node.name}-{case.number}"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.undamaged.folder, folder)
        carry_out(damage, folder, self.undamaged.copies)
        (keep / f"{folder.name}.json").write_bytes(msgspec.json.encode(case, enc_hook=str))


def _verdict(ended: TrialOutcome[Verdict]) -> Verdict:
    if ended.value is not None:
        return ended.value
    if ended.hung:
        return Verdict(Outcome.HANG, (f"after {LIMIT_S:.0f} s", ended.said[-400:]))
    if ended.signal:
        return Verdict(Outcome.SIGNAL, (ended.signal, ended.said[-400:]))
    return Verdict(Outcome.TRACEBACK, (ended.trace.strip().splitlines()[-1], ended.trace))


def _without_digits(name: str) -> str:
    """Return a name for all segments."""
    return "segment-N" + "".join(Path(name).suffixes) if name.startswith("segment-") else name


__all__ = ["OLD_FOLDER", "FolderCampaign", "work_folder"]
