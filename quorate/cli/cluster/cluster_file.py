"""``quorate.toml``: the description of a local cluster that ``quorate up`` starts."""

from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, NamedTuple

CLUSTER_FILE: Final = "quorate.toml"
_NUMBERS: Final = ("quorum", "brokers", "brokers-per-host", "first-broker-id", "port")
_KEYS: Final = (*_NUMBERS, "data", "set")


class Shape(NamedTuple):
    """The shape that the command line or the file asks for. None is what the cluster has, or the
    default."""

    voters: int | None = None
    brokers: int | None = None
    brokers_per_host: int | None = None
    first_broker_id: int | None = None
    port: int | None = None


class ClusterFile(NamedTuple):
    """What the file says; its folder of data is relative to the folder of the file."""

    shape: Shape = Shape()
    data: Path | None = None
    settings: Mapping[str, Any] = {}


def read_cluster_file(path: Path | None) -> ClusterFile:
    """Read the file, or ``./quorate.toml`` if none is named; without that one nothing is said.

    Raises:
        ConfigError: the file cannot be read, or a key or a value in it is wrong.
    """
    from quorate.cli.toml_files import read_tables

    if path is None:
        path = Path(CLUSTER_FILE)
        if not path.exists():
            return ClusterFile()
    values = read_tables(path)
    for key, value in values.items():
        _check(path, key, value)
    data = values.get("data")
    return ClusterFile(
        Shape(*(values.get(key) for key in _NUMBERS)),
        None if data is None else path.parent / str(data),
        _settings(values.get("set", {})),
    )


def _settings(given: Any) -> dict[str, Any]:  # noqa: ANN401 - TOML
    """Return values by their keys; a key without quotes is a table within a table in TOML."""
    found: dict[str, Any] = {}
    for key, value in given.items():
        if isinstance(value, Mapping):
            found |= {f"{key}.{inner}": one for inner, one in _settings(value).items()}
        else:
            found[key] = value
    return found


def _check(path: Path, key: str, value: object) -> None:
    from quorate.common.configuration import ConfigError

    if key not in _KEYS:
        near = get_close_matches(key, _KEYS, 1)
        hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(_KEYS)}"
        raise ConfigError(f"{path}: unknown key {key!r}: {hint}")
    wanted: type = int if key in _NUMBERS else (Mapping if key == "set" else str)
    if not isinstance(value, wanted) or isinstance(value, bool):
        what = {int: "a number", str: "a text"}.get(wanted, "a table")
        raise ConfigError(f"{path}: {key}={value!r} must be {what}")
    least, most = _RANGES.get(key, (0, 0))
    if isinstance(value, int) and not least <= value <= most:
        raise ConfigError(f"{path}: {key}={value} must be from {least} to {most}")


_RANGES: Final[Mapping[str, tuple[int, int]]] = {
    "quorum": (1, 9),
    "brokers": (1, 100),
    "brokers-per-host": (1, 100),
    "first-broker-id": (0, 1_000_000),
    "port": (0, 65_535),
}
"""The ranges of the options of the same names."""
