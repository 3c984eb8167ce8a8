"""A node whose data folder is damaged: how the folder is made, opened and judged."""

import shutil
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.campaign.damage import OLD_FILE, OLD_FOLDER, Damage
from tests.campaign.outcome import Outcome, Verdict


class Undamaged(NamedTuple):
    """A folder, and older copies of it, oldest first."""

    folder: Path
    copies: Sequence[Path]


class DamagedNode(ABC):
    """One kind of node; its methods are called in child processes, but for ``name`` and
    ``remember``."""

    name: str

    @abstractmethod
    def build(self, work: Path, seed: int) -> Undamaged:
        """Make the folder and its copies in ``work``."""

    @abstractmethod
    def remember(self, work: Path, undamaged: Undamaged) -> None:
        """Read what the folder and its copies hold, from copies of them in ``work``."""

    @abstractmethod
    def judge(self, folder: Path) -> Verdict:
        """Open a damaged folder as the node does, and compare it with the undamaged one."""

    @abstractmethod
    def judge_old(self, folder: Path, damage: Damage) -> Verdict:
        """Open a folder that is an old copy, or has an old file."""

    def verify(self, folder: Path) -> Sequence[str] | None:
        """Return the problems that the node's own tool finds, or None if there is no such tool."""
        return None

    def judge_damaged(self, folder: Path, damage: Damage) -> Verdict:
        """Return what the node makes of the folder, and whether its tool agrees."""
        if damage.kind == OLD_FOLDER:
            return self.judge_old(folder, damage)
        looked_at = folder.with_name(f"{folder.name}-verified")
        shutil.rmtree(looked_at, ignore_errors=True)
        shutil.copytree(folder, looked_at)
        verdict = self.judge_old(folder, damage) if damage.kind == OLD_FILE else self.judge(folder)
        if verdict.outcome in (Outcome.HEALED, Outcome.REFUSED):
            found = self.verify(looked_at)
            if found is not None and not found:
                return Verdict(
                    Outcome.VERIFY, (f"no problems, but {verdict.outcome.value}", *verdict.notes)
                )
        return verdict


def copied(work: Path, undamaged: Undamaged) -> list[Path]:
    """Return copies of the folder and of its older copies, which may be opened."""
    made = []
    for number, source in enumerate([undamaged.folder, *undamaged.copies]):
        made.append(work / f"read-{number}")
        shutil.copytree(source, made[-1])
    return made
