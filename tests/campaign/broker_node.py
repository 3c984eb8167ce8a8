"""The broker as a node of the campaign."""

import asyncio
import random
import shutil
from collections.abc import Sequence
from pathlib import Path

from tests.campaign import broker_content
from tests.campaign.broker_content import BrokerContent, History
from tests.campaign.broker_folder import build
from tests.campaign.damage import OLD_FOLDER, Damage
from tests.campaign.node import DamagedNode, Undamaged, copied
from tests.campaign.outcome import Outcome, Verdict
from tests.campaign.trial import in_child, value_of

_BUILD_LIMIT_S = 120.0


class BrokerNode(DamagedNode):
    """A broker's data folder, opened by its log manager."""

    name = "broker"

    def __init__(self) -> None:
        self._contents: list[BrokerContent] = []
        self._history = History()

    def build(self, work: Path, seed: int) -> Undamaged:
        folder = work / "broker"
        chance = random.Random(seed)
        built = in_child(
            lambda: asyncio.run(build(folder, work / "copies", chance)),
            _BUILD_LIMIT_S,
            work / "built.txt",
        )
        copies, self._history = value_of(built)
        return Undamaged(folder, copies)

    def remember(self, work: Path, undamaged: Undamaged) -> None:
        made = copied(work, undamaged)
        read = in_child(lambda: broker_content.read_all(made), _BUILD_LIMIT_S, work / "read.txt")
        self._contents = value_of(read)
        for each in made:
            shutil.rmtree(each)

    def judge(self, folder: Path) -> Verdict:
        return broker_content.judge(folder, self._contents[0], self._history)

    def judge_old(self, folder: Path, damage: Damage) -> Verdict:
        if damage.kind != OLD_FOLDER:
            return self.judge(folder)
        older = self._contents[1 + damage.generation]
        verdict = broker_content.judge(folder, older, self._history)
        return Verdict(Outcome.STALE) if verdict.outcome is Outcome.SAME else verdict

    def verify(self, folder: Path) -> Sequence[str]:
        return broker_content.verify(folder)
