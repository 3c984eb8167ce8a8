"""Formats tables for people: columns are as wide as their contents."""

from collections.abc import Sequence

from quorate.common.escaping import escaped


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
