"""docs/ERRORS.md: the error codes of Kafka that Quorate answers with, and what they mean here."""

import re
from collections.abc import Iterator
from pathlib import Path

from tests.support.reference.markdown import cell, row

PROTO = Path(__file__).resolve().parents[3] / "proto" / "quorate_proto" / "v1" / "errors.proto"
_LINE = re.compile(r"^  ([A-Z0-9_]+) = (-?\d+);\s*// (.*)$", re.MULTILINE)

_HEAD = """# Error codes

Kafka's numbers and names. This page is written from `proto/quorate_proto/v1/errors.proto`
(`python -m tests.support.reference`). A response that has room for a message says what was wrong
with which value as well.
"""


def errors_page() -> str:
    """Return the page."""
    table = [row(("code", "name", "meaning")), row(("---", "---", "---")), *_rows()]
    return _HEAD + "\n" + "\n".join(table) + "\n"


def _rows() -> Iterator[str]:
    for name, code, meaning in _LINE.findall(PROTO.read_text(encoding="utf-8")):
        yield row((code, f"`{name}`", cell(meaning)))
