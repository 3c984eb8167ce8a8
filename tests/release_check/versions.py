"""The version that is released, and whether everything that names it agrees."""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

UNRELEASED: Final = "Unreleased"
_HEADING: Final = re.compile(r"^## (\S+)(?: - \d{4}-\d\d-\d\d)?$", re.MULTILINE)


def project_version(root: Path) -> str:
    """Return the version in pyproject.toml."""
    return str(_toml(root / "pyproject.toml")["project"]["version"])


def disagreements(root: Path, tags: Mapping[str, str], head: str) -> list[str]:
    """Return what does not fit to the version in pyproject.toml, in words.

    Args:
        root: the checkout.
        tags: the commit of each tag.
        head: the commit that is checked out.
    """
    version = project_version(root)
    found = []
    locked = _locked_version(root / "uv.lock")
    if locked != version:
        found.append(f"uv.lock has {locked}, and pyproject.toml {version}: run `uv lock`")
    headings = _HEADING.findall((root / "CHANGELOG.md").read_text(encoding="utf-8"))
    if headings[:2] != [UNRELEASED, version]:
        found.append(
            f"CHANGELOG.md begins with the sections {', '.join(headings[:2])}: it must begin with "
            f"{UNRELEASED} and {version}"
        )
    if tags.get(version, head) != head:
        found.append(f"the tag {version} names commit {tags[version]}, and this is {head}")
    return found


def _locked_version(lock: Path) -> str:
    own = (one for one in _toml(lock)["package"] if one["name"] == "quorate")
    return str(next(own)["version"])


def _toml(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))
