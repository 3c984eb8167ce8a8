"""The voter as a node of the campaign."""

import asyncio
import shutil
from collections.abc import Sequence
from pathlib import Path

from tests.campaign import voter_content
from tests.campaign.damage import Damage
from tests.campaign.node import DamagedNode, Undamaged, copied
from tests.campaign.outcome import Verdict
from tests.campaign.trial import in_child, value_of
from tests.campaign.voter_content import VoterContent
from tests.campaign.voter_folder import BuiltVoter, build

_BUILD_LIMIT_S = 120.0


class VoterNode(DamagedNode):
    """A voter's data folder, opened by its Raft node."""

    name = "voter"

    def __init__(self) -> None:
        self._built = BuiltVoter(Path(), [], {})
        self._contents: list[VoterContent] = []

    def build(self, work: Path, seed: int) -> Undamaged:
        folder = work / "voter"
        built = in_child(
            lambda: asyncio.run(build(folder, work / "quorum", work / "copies")),
            _BUILD_LIMIT_S,
            work / "built.txt",
        )
        self._built = value_of(built)
        return Undamaged(folder, self._built.copies)

    def remember(self, work: Path, undamaged: Undamaged) -> None:
        made = copied(work, undamaged)
        read = in_child(
            lambda: [voter_content.read_with_backup(self._built.config, each) for each in made],
            _BUILD_LIMIT_S,
            work / "read.txt",
        )
        self._contents = value_of(read)
        for each in made:
            shutil.rmtree(each)

    def judge(self, folder: Path) -> Verdict:
        return self._judge(folder, [])

    def judge_old(self, folder: Path, damage: Damage) -> Verdict:
        older = [self._contents[1 + damage.generation]]
        return self._judge(folder, older)

    def _judge(self, folder: Path, older: Sequence[VoterContent]) -> Verdict:
        built = self._built
        expected = self._contents[0]
        return voter_content.judge(built.config, folder, expected, older, built.promises)
