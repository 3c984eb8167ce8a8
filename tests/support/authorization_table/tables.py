"""The table and the list of differences as files that people read."""

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypeAlias

from quorate.broker.kafka.api_table import api_table
from tests.support.authorization_table.columns import COLUMNS

_VERSIONS: Final = "versions"
FOLDER: Final = Path(__file__).parent
EXPECTED: Final = FOLDER / "expected.toml"
DIFFERENCES: Final = FOLDER / "differences.toml"

Table: TypeAlias = Mapping[str, Mapping[str, str]]
"""Title of the row → column → outcome."""


def read_table(path: Path) -> Table:
    """Read a table in which columns with the same outcome share a line."""
    return {title: _cells(row) for title, row in tomllib.loads(path.read_text()).items()}


def _cells(row: Mapping[str, str]) -> dict[str, str]:
    return {column: outcome for columns, outcome in row.items() for column in columns.split()}


def written(table: Table) -> str:
    """Return the text of a table."""
    lines = []
    for title, row in table.items():
        lines.append(f"[{json.dumps(title)}]")
        columns_of: dict[str, list[str]] = {}
        for column in sorted(row, key=COLUMNS.index):
            columns_of.setdefault(row[column], []).append(column)
        lines += [
            f"{json.dumps(' '.join(columns))} = {json.dumps(outcome)}"
            for outcome, columns in columns_of.items()
        ]
        lines.append("")
    return "\n".join(lines)


def listed_differences() -> dict[str, tuple[str, dict[str, str]]]:
    """Return title → why Kafka answers otherwise, and its cells."""
    listed = tomllib.loads(DIFFERENCES.read_text())
    return {
        title: (row["reason"], _cells({key: row[key] for key in row if key != "reason"}))
        for title, row in listed.items()
        if title != _VERSIONS
    }


def listed_versions() -> dict[str, str]:
    """Return which versions of an API Quorate and Kafka serve, where these are not the same."""
    listed: dict[str, str] = tomllib.loads(DIFFERENCES.read_text())[_VERSIONS]
    return listed


def different_versions(theirs: Mapping[int, tuple[int, int]]) -> dict[str, str]:
    """Return what ``listed_versions`` should have for a broker that serves these."""
    found = {}
    for key, api in api_table().items():
        ours = (api.min_version, api.max_version)
        if theirs.get(key) != ours:
            kafkas = "{}-{}".format(*theirs[key]) if key in theirs else "none"
            found[api.name] = f"Quorate {ours[0]}-{ours[1]}, Kafka {kafkas}"
    return found


def expected() -> Table:
    """Return what Quorate answers, as it was reviewed."""
    return read_table(EXPECTED)


def different_cells(ours: Table, theirs: Table) -> dict[str, dict[str, str]]:
    """Return the cells of ``theirs`` that ``ours`` does not have, or has otherwise."""
    found = {
        title: {
            column: outcome
            for column, outcome in row.items()
            if ours.get(title, {}).get(column) != outcome
        }
        for title, row in theirs.items()
    }
    return {title: row for title, row in found.items() if row}
