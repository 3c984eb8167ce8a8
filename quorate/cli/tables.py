"""Formats tables for people: columns are as wide as their contents.

On a terminal they have lines and bold heads; what is piped is plain text.
"""

import sys
from collections.abc import Sequence
from typing import TextIO

from quorate.cli.output import echo_lines
from quorate.common.escaping import escaped


def print_table(heads: Sequence[str], rows: Sequence[Sequence[str]], *, none: str = "none") -> None:
    """Print the rows under their heads, or ``none`` where there are no rows."""
    if not rows:
        echo_lines(none)
    elif sys.stdout.isatty():
        print_rich_table(heads, rows, sys.stdout)
    else:
        echo_lines(table(heads, rows))


def print_rich_table(heads: Sequence[str], rows: Sequence[Sequence[str]], terminal: TextIO) -> None:
    """Print a table for a terminal; cells are escaped, and nothing in them is markup."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    made = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    columns = zip(*rows, strict=True)
    for head, column in zip(heads, columns, strict=True):
        made.add_column(head, justify="right" if all(map(_is_number, column)) else "left")
    for row in rows:
        made.add_row(*(Text(escaped(cell)) for cell in row))
    Console(file=terminal).print(made)


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return the rows under their heads; columns that hold only numbers are aligned to the right.

    Control characters in cells are escaped, so that a cell is neither more nor less than a cell.
    """
    rows = [[escaped(text) for text in row] for row in rows]
    columns = list(zip(heads, *rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    are_numbers = [all(_is_number(text) for text in column[1:]) for column in columns]
    return "\n".join(
        "  ".join(
            text.rjust(width) if is_number else text.ljust(width)
            for text, width, is_number in zip(line, widths, are_numbers, strict=True)
        ).rstrip()
        for line in (heads, *rows)
    )


def _is_number(text: str) -> bool:
    return text.replace(",", "").lstrip("-").isdecimal() or text == "-"
