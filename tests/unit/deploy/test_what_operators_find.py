"""Operators find the figures: each template turns them on, and the guides link what reads them."""

from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[3]
DEPLOY: Final = ROOT / "deploy"
TEMPLATES: Final = sorted(
    path.relative_to(DEPLOY)
    for path in DEPLOY.rglob("*.toml*")
    if path.name.startswith(("broker", "quorum"))
)


def test_every_way_of_deployment_has_templates_of_both_processes() -> None:
    found = {(path.parts[0], path.name.partition(".")[0]) for path in TEMPLATES}
    for folder in ("config", "compose", "kubernetes"):
        assert {(folder, "broker"), (folder, "quorum")} <= found


@pytest.mark.parametrize("template", TEMPLATES, ids=str)
def test_every_template_shows_figures(template: Path) -> None:
    lines = (DEPLOY / template).read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if line.startswith('"metrics.listener" = "')]


@pytest.mark.parametrize(
    ("guide", "linked"),
    [
        ("README.md", "docs/METRICS.md"),
        ("docs/DEPLOY.md", "METRICS.md"),
        ("docs/DEPLOY.md", "../deploy/prometheus/alerts.yml"),
        ("docs/DEPLOY.md", "../deploy/grafana/quorate.json"),
        ("docs/METRICS.md", "../deploy/prometheus/alerts.yml"),
        ("docs/METRICS.md", "../deploy/grafana/quorate.json"),
        ("README.md", "docs/CLI.md"),
        ("README.md", "docs/TESTING.md"),
    ],
)
def test_the_guides_link_what_there_is(guide: str, linked: str) -> None:
    page = ROOT / guide
    assert f"]({linked})" in page.read_text(encoding="utf-8")
    assert (page.parent / linked).is_file()
