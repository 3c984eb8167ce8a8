"""The table of releases, the tags and the changelog say the same, and levels only grow."""

import re
import tomllib
from itertools import pairwise

import pytest

from quorate.metadata_log.features import NEWEST_INTER_BROKER_PROTOCOL, NEWEST_METADATA_VERSION
from tests.support.guide import ROOT
from tests.support.releases.table import (
    ONLINE_FROM,
    RELEASES,
    Release,
    git,
    release,
    tags,
    why_not_here,
)

CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
UPGRADE = (ROOT / "docs" / "UPGRADE.md").read_text(encoding="utf-8")
_HEADING = re.compile(r"^## (?P<version>\S+)(?: - (?P<day>\d{4}-\d\d-\d\d))?$", re.MULTILINE)

by_version = pytest.mark.parametrize("one", RELEASES, ids=lambda one: one.version)


def sections() -> dict[str, str]:
    """The text of each section of the changelog by its version, the newest first."""
    found = list(_HEADING.finditer(CHANGELOG))
    ends = [match.start() for match in found[1:]] + [len(CHANGELOG)]
    return {
        match["version"]: CHANGELOG[match.end() : end]
        for match, end in zip(found, ends, strict=True)
    }


def test_the_changelog_has_a_section_for_each_release_and_one_for_what_comes_next() -> None:
    """The commit that makes a release names it before the table can."""
    known = [one.version for one in reversed(RELEASES)]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    own = project["project"]["version"]
    assert list(sections()) == ["Unreleased", *([] if own in known else [own]), *known]


def test_each_section_begins_with_what_it_can_be_upgraded_from() -> None:
    first = RELEASES[0].version
    for version, text in sections().items():
        begins = text.strip().splitlines()[0]
        assert begins.startswith("The first release" if version == first else "Upgrades from ")


def test_the_changelog_and_the_guide_name_the_releases_that_are_tested_beside_this_one() -> None:
    begins = " ".join(sections()["Unreleased"].strip().split("\n\n")[0].split())
    assert begins.startswith(f"Upgrades from {' and '.join(ONLINE_FROM)} while the cluster runs")
    for version in ONLINE_FROM:
        assert f"| {version} |" in UPGRADE
        assert release(version) in RELEASES


@by_version
def test_a_tag_that_is_here_names_the_commit_of_the_table(one: Release) -> None:
    assert tags().get(one.version, one.commit) == one.commit


@by_version
def test_the_commit_has_the_levels_of_the_table_and_lies_in_this_history(one: Release) -> None:
    if why := why_not_here(one):
        pytest.skip(why)
    features = git("show", f"{one.commit}:metadata_log/features.py").stdout.decode()
    assert f"NEWEST_METADATA_VERSION: Final = {one.metadata_version}\n" in features
    assert f"NEWEST_INTER_BROKER_PROTOCOL: Final = {one.inter_broker_protocol}\n" in features
    assert git("merge-base", "--is-ancestor", one.commit, "HEAD", check=False).returncode == 0


@by_version
def test_the_wheel_of_a_release_bears_its_version(one: Release) -> None:
    if why := why_not_here(one):
        pytest.skip(why)
    project = tomllib.loads(git("show", f"{one.commit}:pyproject.toml").stdout.decode())
    assert project["project"]["version"] == one.version


def test_no_release_has_a_level_that_a_later_one_lacks() -> None:
    levels = [(one.metadata_version, one.inter_broker_protocol) for one in RELEASES]
    levels.append((NEWEST_METADATA_VERSION, NEWEST_INTER_BROKER_PROTOCOL))
    for earlier, later in pairwise(levels):
        assert all(before <= after for before, after in zip(earlier, later, strict=True))
