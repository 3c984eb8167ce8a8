"""Long tests are given out first, whole files at a time."""

from types import SimpleNamespace
from typing import cast

import pytest

from tests.support.work_units import in_order, room_of


def items(*nodeids: str) -> list[pytest.Item]:
    return [cast("pytest.Item", SimpleNamespace(nodeid=nodeid)) for nodeid in nodeids]


@pytest.mark.parametrize(
    ("nodeid", "room"),
    [
        ("tests/spark/test_source.py::test_a[x/y::z]", "spark"),
        ("tests/unit/log/test_store.py::test_b", "unit"),
        ("tests/test_c.py::test_c", ""),
        ("elsewhere/spark/test_d.py::test_d", ""),
    ],
)
def test_a_test_lies_in_a_room(nodeid: str, room: str) -> None:
    assert room_of(nodeid) == room


def test_what_takes_longest_comes_first_and_keeps_its_order() -> None:
    given = items(
        "tests/unit/a.py::1",
        "tests/spark/b.py::2",
        "tests/other/c.py::3",
        "tests/spark/a.py::4",
        "tests/integration/d.py::5",
    )
    order = [item.nodeid.rsplit("::", 1)[1] for item in in_order(given)]
    assert order == ["2", "4", "5", "1", "3"]
