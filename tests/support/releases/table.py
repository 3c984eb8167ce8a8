"""Lists which commit each release is, and from which releases this checkout upgrades while it runs.

Tags do not travel with every clone, so this table says the same as they do.
``tests/unit/test_releases.py`` holds it, the tags and the changelog against one another.

docs/RELEASING.md says how a release is made.
"""

import subprocess
from pathlib import Path
from typing import Final, NamedTuple

from tests.support.guide import ROOT


class Release(NamedTuple):
    """A release, and the levels that a new cluster of it begins at."""

    version: str
    commit: str
    metadata_version: int
    inter_broker_protocol: int
    keeps_folders: bool
    """Whether it reads the data folders that this checkout has written to."""


RELEASES: Final = (
    Release(
        version="0.1.0",
        commit="ccaa060dcb3a8f36a9b029ced778cbb4d3a5a949",
        metadata_version=4,
        inter_broker_protocol=2,
        keeps_folders=False,
    ),
)
"""The oldest first."""

ONLINE_FROM: Final = ("0.1.0",)
"""The releases that processes of this checkout work beside, as the changelog says."""


def release(version: str) -> Release:
    """Return the release of that version."""
    return next(one for one in RELEASES if one.version == version)


def why_not_here(one: Release) -> str:
    """Return why the release cannot be built here, or "" if it can."""
    known = git("cat-file", "-e", f"{one.commit}^{{commit}}", check=False)
    if known.returncode == 0:
        return ""
    return f"{one.version} is commit {one.commit[:12]}, which this copy of the repository lacks"


def extract(one: Release, folder: Path) -> Path:
    """Write the files of the release to ``folder``, and return it."""
    folder.mkdir(parents=True)
    archive = git("archive", "--format=tar", one.commit).stdout
    subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)
    return folder


def tags() -> dict[str, str]:
    """Return the commit of every tag of this copy of the repository."""
    shown = git(
        "for-each-ref", "--format=%(refname:short) %(*objectname) %(objectname)", "refs/tags"
    )
    words = [line.split() for line in shown.stdout.decode().splitlines()]
    return {name: commit for name, commit, *_ in words}


def git(*words: str, check: bool = True) -> subprocess.CompletedProcess[bytes]:
    """Run git in this checkout."""
    return subprocess.run(["git", "-C", ROOT, *words], capture_output=True, check=check)
