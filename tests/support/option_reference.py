"""The table of options in docs/SPARK.md, as the declarations have it.

``python -m tests.support.option_reference`` writes it there; a test sees whether that was done.
"""

import sys
from pathlib import Path

from quorate.spark.options.option_declaration import AnyOption, Scope
from quorate.spark.options.option_table import OPTIONS

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "SPARK.md"
BEGIN = "<!-- options: python -m tests.support.option_reference -->\n"
END = "<!-- end of options -->\n"

_HEAD = "| option | for | value | default | |\n|---|---|---|---|---|\n"


def reference() -> str:
    """The table in Markdown."""
    return _HEAD + "".join(map(_row, OPTIONS))


def with_reference(guide: str) -> str:
    """The guide with the table between the marks as it should be."""
    before, found, rest = guide.partition(BEGIN)
    _, found_end, after = rest.partition(END)
    assert found, f"docs/SPARK.md lacks {BEGIN}"
    assert found_end, f"docs/SPARK.md lacks {END}"
    return f"{before}{BEGIN}\n{reference()}\n{END}{after}"


def _row(option: AnyOption) -> str:
    names = " or ".join(f"`{name}`" for name in option.names)
    scopes = ", ".join(scope.value for scope in Scope if scope in option.scopes)
    cells = (names, scopes, option.kind.says, _default(option), option.doc)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"


def _default(option: AnyOption) -> str:
    if option.default_says or option.default is None:
        return option.default_says
    text = str(option.default)
    return text.lower() if isinstance(option.default, bool) else text


if __name__ == "__main__":
    GUIDE.write_text(with_reference(GUIDE.read_text()))
    sys.stdout.write(f"{GUIDE}: {len(OPTIONS)} options\n")
