"""The table of docs/QUOTAS.md, which ``python -m bench.mutation_quota --docs`` writes."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from bench._support import Cell

Row = Mapping[str, Cell]


def _number(name: str, form: str = ",.0f") -> Callable[[Row], str]:
    return lambda row: format(float(row[name]), form) if name in row else ""


def _quota(row: Row) -> str:
    return f"{row['quota']:,} / {row['burst']:,}" if "burst" in row else str(row.get("quota", ""))


def _storm(row: Row) -> str:
    return f"{row['storm']}, {row['client']} client" if "client" in row else str(row["storm"])


def _of_both(row: Row) -> str:
    names = ("on request: elected p50 ms", "on request: elected max ms")
    return " / ".join(_number(name)(row) for name in names)


_COLUMNS: Final[Mapping[str, Callable[[Row], str]]] = {
    "storm": _storm,
    "quota / burst": _quota,
    "storm, s": _number("storm s", ".1f"),
    "by formula, s": _number("by formula s", ".1f"),
    "partitions/s": _number("partitions/s"),
    "requests": _number("requests"),
    "told to wait, max ms": _number("told to wait max ms"),
    "killed: elected, s": _number("killed: elected s", ".2f"),
    "on request: p50 / max ms": _of_both,
    "produce p99, ms": _number("produce p99 ms"),
    "queued, mean": _number("queued mean", ".1f"),
    "elections waited, max ms": _number("elections waited at most ms", "g"),
    "controller, % of a core": _number("controller CPU %"),
}
_HEADER: Final = f"| {' | '.join(_COLUMNS)} |"


def table(rows: Sequence[Row]) -> list[str]:
    """The rows in Markdown."""
    lines = [" | ".join(column(row) for column in _COLUMNS.values()) for row in rows]
    return [_HEADER, "|---" * len(_COLUMNS) + "|", *(f"| {line} |" for line in lines)]


def rewritten(text: str, rows: Sequence[Row]) -> str:
    """The page with these rows in place of its table.

    Raises:
        ValueError: the page has no such table.
    """
    lines = text.split("\n")
    first = lines.index(_HEADER)
    end = next(at for at in range(first, len(lines)) if not lines[at].startswith("|"))
    return "\n".join([*lines[:first], *table(rows), *lines[end:]])
