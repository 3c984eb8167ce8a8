"""What the check found: a table, and how the release is tagged."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple


class Outcome(NamedTuple):
    """One archive in an environment of one Python; ``failure`` is empty if all went well."""

    python: str
    archive: str
    up_s: float
    failure: str


def table(outcomes: Sequence[Outcome]) -> list[str]:
    """Return a line per environment."""
    rows = [("Python", "archive", "quick start", "quorate up")]
    rows += [
        (one.python, one.archive, "fails", "")
        if one.failure
        else (one.python, one.archive, "works", f"{one.up_s:.1f} s")
        for one in outcomes
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def absent(pythons: Mapping[str, Path | None]) -> list[str]:
    """Return one line that names the Pythons that could not be had; none if there are all."""
    missing = [version for version, path in pythons.items() if path is None]
    if not missing:
        return []
    return [
        f"not checked, because this machine has none and uv cannot fetch it: {', '.join(missing)}"
    ]


def next_steps(version: str, commit: str, *, tagged: bool, clean: bool) -> list[str]:
    """Return how the release is made public after the check passed."""
    if not clean:
        return ["All works, but not all of it is committed: commit it, and check again."]
    if tagged:
        return [f"{version} is tagged."]
    return [
        f"Release {version} can be tagged:",
        f"  git tag -a {version} -m 'Quorate {version}' {commit}",
        f"  git push origin {version}",
        "and then be added to RELEASES in tests/support/releases/table.py (docs/RELEASING.md).",
    ]
