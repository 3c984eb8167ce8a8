"""The pages that are written, by the names of their files."""

from collections.abc import Callable, Mapping
from pathlib import Path

from tests.support.reference.cli_page import cli_page
from tests.support.reference.config_page import config_page
from tests.support.reference.errors_page import errors_page

DOCS = Path(__file__).resolve().parents[3] / "docs"

PAGES: Mapping[str, Callable[[], str]] = {
    "CONFIG.md": config_page,
    "CLI.md": cli_page,
    "ERRORS.md": errors_page,
}
