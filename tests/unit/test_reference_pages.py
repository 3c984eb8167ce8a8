"""The pages that the product writes about itself are fresh, and complete."""

import pytest

from quorate.broker.config.spec import BROKER_SPEC
from tests.support.reference.pages import DOCS, PAGES


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_fresh(name: str) -> None:
    written = (DOCS / name).read_text(encoding="utf-8")
    assert written == PAGES[name](), "run python -m tests.support.reference"


def test_the_pages_have_what_there_is() -> None:
    config, commands = PAGES["CONFIG.md"](), PAGES["CLI.md"]()
    assert all(f"| `{key.name}` |" in config for key in BROKER_SPEC)
    assert "### quorate topics describe\n" in commands
    assert "`--exit-eof`" in commands
    assert "| 3 | `UNKNOWN_TOPIC_OR_PARTITION` |" in PAGES["ERRORS.md"]()
