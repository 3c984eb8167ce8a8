"""Reads TOML files that have tables, unlike the configuration files of nodes."""

import tomllib
from pathlib import Path
from typing import Any

from quorate.common.configuration import ConfigError


def read_tables(path: Path) -> dict[str, Any]:
    """Read a file.

    Raises:
        ConfigError: it cannot be read, or is no TOML.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error
