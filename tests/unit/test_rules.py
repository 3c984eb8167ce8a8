"""The tables of docs/RULES.md name tests that exist."""

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
RULES = TESTS.parent / "docs" / "RULES.md"


def test_every_rule_of_fencing_names_tests_that_exist() -> None:
    rows = re.findall(r"^\| (\d) \| .* \| `(test_\w+)` \|$", RULES.read_text(), re.MULTILINE)
    written = {
        name
        for file in TESTS.rglob("test_*.py")
        for name in re.findall(r"def (test_\w+)\(", file.read_text(encoding="utf-8"))
    }
    assert {rule for rule, _ in rows} == set("123456789")
    assert [name for _, name in rows if name not in written] == []
