"""Files and names in folders that survive a crash of the machine."""

import os
from pathlib import Path


def sync_folder(path: Path) -> None:
    """Make names created in, renamed in or removed from ``path`` durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_durably(path: Path, content: bytes) -> None:
    """Replace the file ``path`` with ``content``, all or nothing, on disk before it returns."""
    scratch = path.with_name(f"{path.name}.tmp")
    with scratch.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    scratch.replace(path)
    sync_folder(path.parent)
