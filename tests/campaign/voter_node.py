"""The voter as a node of the campaign."""

import asyncio
import shutil
from pathlib import Path

import msgspec

from tests.campaign import voter_content
from tests.campaign.damage import Damage
from tests.campaign.node import DamagedNode, Undamaged, copied
from tests.campaign.outcome import Verdict
from tests.campaign.trial import in_child, value_of
from tests.campaign.voter_content import BACKUP_FILE, VoterContent
from tests.campaign.voter_folder import build

_BUILD_LIMIT_S = 120.0


class VoterNode(DamagedNode):
    """A voter's data folder, opened by its Raft node."""

    name = "voter"

    def __init__(self) -> None:
        self._config = Path()
        self._contents: list[VoterContent] = []

    def build(self, work: Path, seed: int) -> Undamaged:
        folder = work / "voter"
        built = in_child(
            lambda: asyncio.run(build(folder, work / "quorum", work / "copies")),
            _BUILD_LIMIT_S,
            work / "built.txt",
        )
        self._config, copies = value_of(built)
        return Undamaged(folder, copies)

    def remember(self, work: Path, undamaged: Undamaged) -> None:
        made = copied(work, undamaged)
        read = in_child(
            lambda: [voter_content.read_with_backup(self._config, each) for each in made],
            _BUILD_LIMIT_S,
            work / "read.txt",
        )
        self._contents = value_of(read)
        for each in made:
            shutil.rmtree(each)

    def judge(self, folder: Path) -> Verdict:
        return voter_content.judge(self._config, folder, self._contents[0], [])

    def judge_old(self, folder: Path, damage: Damage) -> Verdict:
        older = [self._contents[1 + damage.generation]]
        if damage.file == BACKUP_FILE:
            older = [*older, msgspec.structs.replace(self._contents[0], backup=older[0].backup)]
        return voter_content.judge(self._config, folder, self._contents[0], older)
