"""The table of Kafka's APIs in docs/CLIENTS.md: who may read what is served, and since when.

The column of Quorate is what the table of APIs says. ``python -m tests.support.api_documentation``
writes it anew, and a test compares it. Kafka's column and the reasons are written by hand: whoever
serves an API, or further versions of one, removes the reason why not.
"""

import re
from pathlib import Path
from typing import Final, NamedTuple

from quorate.broker.kafka.api_table import api_table

DOCUMENT: Final = Path(__file__).parents[2] / "docs" / "CLIENTS.md"

NOT_SERVED: Final = "no"

_ROW: Final = re.compile(
    r"^\| (?P<key>\d+) \| (?P<name>\w+) \| (?P<kafka>[\d-]+) \| (?P<here>[\d-]+|no) "
    r"\| (?P<why>.*?) ?\|$",
    re.MULTILINE,
)


class ApiRow(NamedTuple):
    """One API: its versions of Kafka and of Quorate, and why they differ."""

    key: int
    name: str
    kafka: str
    here: str
    why: str


def rows(text: str) -> list[ApiRow]:
    """Return the rows of the table in the document, in their order."""
    return [
        ApiRow(int(one["key"]), one["name"], one["kafka"], one["here"], one["why"])
        for one in _ROW.finditer(text)
    ]


def served(key: int) -> str:
    """Return the versions of an API that are served, as the document has them."""
    api = api_table().get(key)
    if api is None:
        return NOT_SERVED
    least, most = api.min_version, api.max_version
    return str(least) if least == most else f"{least}-{most}"


def rewritten(text: str) -> str:
    """Return the document with the versions that are served."""

    def row(found: re.Match[str]) -> str:
        cells = [found["key"], found["name"], found["kafka"], served(int(found["key"]))]
        return f"| {' | '.join([*cells, found['why']]).rstrip()} |"

    return _ROW.sub(row, text)


if __name__ == "__main__":
    DOCUMENT.write_text(rewritten(DOCUMENT.read_text()))
