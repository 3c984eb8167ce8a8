"""Decides which tests a worker of a parallel run takes together, and in what order they are
taken."""

from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Final

import pytest
from xdist.scheduler import LoadFileScheduling

_ROOMS: Final = ("spark", "integration", "clients", "sim", "unit")
"""The folders of tests/, with what takes longest first: at the end the workers have little left to
share."""


def room_of(nodeid: str) -> str:
    """The folder under tests/ that a test lies in, or "" for none."""
    parts = PurePosixPath(nodeid.split("::", 1)[0]).parts
    return parts[1] if len(parts) > 2 and parts[0] == "tests" else ""


def in_order(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Return the items by room; within one as they come, which pytest-randomly has shuffled."""
    rank = {room: place for place, room in enumerate(_ROOMS)}
    return sorted(items, key=lambda item: rank.get(room_of(item.nodeid), len(_ROOMS)))


class WorkUnits(LoadFileScheduling):  # type: ignore[misc] # xdist tells no types
    """A file is a unit, for its fixtures' sake; all of Spark's are one: they share one session."""

    def __init__(self, config: pytest.Config, log: object) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        room = room_of(nodeid)
        return room if room == "spark" else str(super()._split_scope(nodeid))
