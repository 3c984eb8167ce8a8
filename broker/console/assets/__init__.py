"""The style sheet, the script and the icon of the console, as files of the package."""

import hashlib
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Final, NamedTuple


class Asset(NamedTuple):
    """A file and its type."""

    content: bytes
    content_type: str


_TYPES: Final = MappingProxyType(
    {
        "console.css": "text/css",
        "console.js": "text/javascript",
        "icon.svg": "image/svg+xml",
    }
)


@cache
def assets() -> dict[str, Asset]:
    """Return the files by name."""
    folder = resources.files(__name__)
    return {name: Asset((folder / name).read_bytes(), kind) for name, kind in _TYPES.items()}


@cache
def version() -> str:
    """Return a text that changes with the content of the files: browsers keep them under it."""
    digest = hashlib.sha256(b"".join(one.content for one in assets().values()))
    return digest.hexdigest()[:12]
