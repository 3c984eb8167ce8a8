"""Voters of either side, closed at the end of the test."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.raft_sides import Clock, Side, stopped_clock


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The stock library leaves the closing of files to the collector."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning"))


@pytest.fixture
def clock() -> Iterator[Clock]:
    with stopped_clock() as clock:
        yield clock


@pytest.fixture
def closing() -> Iterator[Callable[[Side], Side]]:
    """Closes what it is called with at the end."""
    with contextlib.ExitStack() as stack:

        def close_later(side: Side) -> Side:
            stack.callback(side.close)
            return side

        yield close_later


@pytest.fixture
def voter(side: type[Side], tmp_path: Path, clock: Clock, closing: Callable[[Side], Side]) -> Side:
    """Voter 1 of three, with nothing on disk yet."""
    return closing(side(tmp_path / "voter", clock))


@pytest.fixture
def lone(side: type[Side], tmp_path: Path, clock: Clock, closing: Callable[[Side], Side]) -> Side:
    """The only voter there is."""
    return closing(side(tmp_path / "lone", clock, 1))
