"""Writes the pages into docs/."""

from tests.support.reference.pages import DOCS, PAGES

for name, page in PAGES.items():
    (DOCS / name).write_text(page(), encoding="utf-8")
