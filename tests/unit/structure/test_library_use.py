"""How much of PySyncObj our voters run: what is counted, and that the docs say it."""

import re
from pathlib import Path

import pytest

from tests.structure.library_use import CORE, library_use, lines_run, statements

DECISION = Path(__file__).parents[3] / "docs/decisions/22-pysyncobj-decides-behind-guards.md"
WITHIN_PERCENT = 4
"""A run this short does not come by everything that a longer one does."""

SOURCE = '''
import os

class Counted:
    """Not counted."""

    def method(self, flag):
        """Nor is this."""
        import sys
        if flag:
            return 1

        def inner():
            return 3
        return 2
'''


def test_statements_in_functions_count_and_nothing_else() -> None:
    assert statements(SOURCE) == {10, 11, 14, 15}


def test_lines_count_that_were_run_in_the_folder(tmp_path: Path) -> None:
    scope: dict[str, type] = {}
    exec(compile(SOURCE, str(tmp_path / "counted.py"), "exec"), scope)
    counted = scope["Counted"]()
    seen = lines_run(lambda: counted.method(False), tmp_path)
    assert seen["counted.py"] & statements(SOURCE) == {10, 15}
    assert not lines_run(lambda: counted.method(True), tmp_path / "elsewhere")


@pytest.mark.slow
def test_d4_the_docs_say_how_much_of_the_library_is_run() -> None:
    said = re.search(r"(\d+) % of the statements of `syncobj.py`", DECISION.read_text())
    assert said is not None
    found = library_use(seeds=(1,), steps=40)[CORE]
    assert abs(found.percent - int(said[1])) <= WITHIN_PERCENT
