"""Tables in Markdown."""

from collections.abc import Iterable


def cell(text: str) -> str:
    """Return text as it may stand in a cell of a table, and outside of code."""
    escaped = text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")
    return " ".join(escaped.split())


def row(cells: Iterable[str]) -> str:
    """Return a row; its cells are Markdown already."""
    return f"| {' | '.join(cells)} |"
