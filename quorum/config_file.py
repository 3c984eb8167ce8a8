"""Configuration files of voters and brokers: TOML, dotted keys flat."""

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from metadata_log.configuration import ConfigError


def read_toml(path: Path) -> dict[str, Any]:
    """Flat keys of a TOML file: ``"broker.id" = 1`` and ``broker.id = 1`` mean the same.

    Raises:
        ConfigError: the file is missing or malformed.
    """
    try:
        return dict(_flattened("", tomllib.loads(path.read_text(encoding="utf-8"))))
    except OSError as error:
        raise ConfigError(f"cannot read configuration file {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"configuration file {path} is not TOML: {error}") from error


def _flattened(prefix: str, table: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _flattened(f"{prefix}{name}.", value)
        else:
            yield f"{prefix}{name}", value
