"""The table of docs/AVAILABILITY.md follows the bench."""

from pathlib import Path

import pytest

from bench._availability_table import rewritten
from bench._faults import FAULTS

PAGE = """# Measured

| fault | victim | runs | stall | median | default client |
|---|---|---|---|---|---|
| cut | broker | 1 | 9.0 | 8.0 | 7.0 |
| the same, long ago | broker | 1 | 5.0 | 5.0 | 5.0 |
| kill | broker | 1 | 2.0 | 1.0 | 2.0 |

More.
"""
ORDER = [("kill", "broker"), ("kill", "controller"), ("cut", "broker"), ("never", "broker")]


def test_what_was_measured_is_written_and_the_rest_stays() -> None:
    figures = {"stall s": 1.44, "led s": 1.0, "median s": 0.96, "default client s": 60}
    measured = {("kill", "controller"): figures, ("cut", "broker"): figures}
    assert rewritten(PAGE, ORDER, measured, runs=3).split("\n")[4:9] == [
        "| kill | broker | 1 | 2.0 | 1.0 | 2.0 |",
        "| kill | controller | 3 | 1.4 | 1.0 | 60.0 |",
        "| cut | broker | 3 | 1.4 | 1.0 | 60.0 |",
        "",
        "More.",
    ]


def test_a_page_without_the_table_is_not_touched() -> None:
    with pytest.raises(ValueError, match="not in list"):
        rewritten("# Something else\n", ORDER, {}, runs=3)


def test_the_page_has_the_table() -> None:
    page = (Path(__file__).parents[3] / "docs/AVAILABILITY.md").read_text(encoding="utf-8")
    rewritten(page, [(fault.name, fault.victim) for fault in FAULTS], {}, runs=3)
