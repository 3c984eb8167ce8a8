"""The table of docs/QUOTAS.md, which the bench of mutation quotas writes."""

from pathlib import Path

from bench._mutation_quota_table import Row, rewritten, table

PAGE = Path(__file__).parents[3] / "docs" / "QUOTAS.md"

ROW: Row = {"storm": "create", "client": "new", "quota": 1_000, "burst": 11_000, "storm s": 9.04}


def test_the_page_has_the_table_and_gets_new_rows_in_place_of_its_own() -> None:
    before = PAGE.read_text(encoding="utf-8")
    after = rewritten(before, [ROW])
    assert rewritten(after, [ROW]) == after
    (line,) = [line for line in after.splitlines() if line.startswith("| create, ")]
    assert line.startswith("| create, new client | 1,000 / 11,000 | 9.0 |  |")
    assert after.split(table([ROW])[0])[0] == before.split(table([ROW])[0])[0]
