"""The navigation of the site leads to every page of docs/; `make docs` builds it strictly."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_navigation_has_every_page() -> None:
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    named = set(re.findall(r": (\S+\.md)$", nav, re.MULTILINE))
    pages = {page.name for page in (ROOT / "docs").glob("*.md")}
    assert named == {*pages, "index.md", "CHANGELOG.md", "decisions/README.md"}
