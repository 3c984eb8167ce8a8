"""Does to files what happens on disks: flips bits, cuts files, and takes away the right to
write."""

import os
import shutil
from pathlib import Path

import pytest


def flip(path: Path, wanted: bytes) -> None:
    """One bit of every place where ``wanted`` is."""
    content = bytearray(path.read_bytes())
    at = content.find(wanted)
    assert at >= 0
    while at >= 0:
        content[at + len(wanted) // 2] ^= 1
        at = content.find(wanted, at + 1)
    path.write_bytes(content)


def cut(path: Path, size: int) -> None:
    os.truncate(path, size)


def without_privileges() -> list[str]:
    """Command prefix under which root, too, is held to permissions."""
    if os.geteuid() != 0:
        return []
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        pytest.skip("root without setpriv may write everywhere")
    return [setpriv, "--bounding-set=-all", "--inh-caps=-all"]
