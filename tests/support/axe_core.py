"""axe-core, which finds what keeps people with disabilities from using a page.

It is an npm package. ``AXE_CORE`` may name its file ``axe.min.js``; otherwise npm fetches the
package, once, into ``build``.
"""

import hashlib
import os
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any, Final, NamedTuple

_PACKAGE: Final = "axe-core@4.10.2"
_SHA256: Final = "9ea2d2d6917da998122bdacfd3b473e31ead53f4b87146c716a12edf89158100"
_FOLDER: Final = Path(__file__).parents[2] / "build" / "axe-core"
_TIMEOUT_S: Final = 120.0
GRAVE: Final = frozenset({"serious", "critical"})
"""The impacts that no page may have."""


class Barrier(NamedTuple):
    """One rule that a page breaks, with the first elements that break it."""

    page: str
    rule: str
    elements: tuple[str, ...]


def axe_script() -> str | None:
    """Return the script, or None if nothing on this machine can give it."""
    if named := os.environ.get("AXE_CORE"):
        return Path(named).read_text("utf-8")
    if shutil.which("npm") is None:
        return None
    archive = _FOLDER / f"{_PACKAGE.replace('@', '-')}.tgz"
    if not archive.exists():
        _FOLDER.mkdir(parents=True, exist_ok=True)
        command = ["npm", "pack", _PACKAGE, "--pack-destination", str(_FOLDER)]
        fetched = subprocess.run(command, capture_output=True, timeout=_TIMEOUT_S, check=False)
        if fetched.returncode:
            return None
    content = archive.read_bytes()
    assert hashlib.sha256(content).hexdigest() == _SHA256, f"{archive} is another package"
    with tarfile.open(archive) as packed:
        member = packed.extractfile("package/axe.min.js")
        assert member is not None
        return member.read().decode()


def barriers(page: Any, script: str, path: str) -> list[Barrier]:  # noqa: ANN401 - playwright's page
    """Return the rules of grave impact that a page breaks which is open, with everything on it
    unfolded.
    """
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    page.evaluate(script)
    found = page.evaluate("axe.run()")
    assert found["passes"], f"{path}: axe-core has checked nothing"
    return [
        Barrier(path, one["id"], tuple(node["html"] for node in one["nodes"][:3]))
        for one in found["violations"]
        if one["impact"] in GRAVE
    ]
