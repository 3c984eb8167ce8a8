"""The cluster that a command talks to when its options name none: variables and profiles.

Variables ``QUORATE_…`` stand for the options of the same name. Profiles are in a TOML file, which
is ``~/.config/quorate/config.toml`` unless ``QUORATE_CONFIG`` names another:

    profile = "local"

    [profiles.local]
    data = "~/quorate-data"

    [profiles.production]
    bootstrap-server = "10.20.0.1:9092,10.20.0.2:9092"
    command-config = "client.toml"
    bootstrap-controller = "10.20.0.1:7101"

Paths are relative to the folder of the file. ``--profile`` or ``QUORATE_PROFILE`` chooses another
profile than the one that ``profile`` names.
"""

import os
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])

CONFIG_VARIABLE: Final = "QUORATE_CONFIG"
PROFILE_VARIABLE: Final = "QUORATE_PROFILE"
DATA_VARIABLE: Final = "QUORATE_DATA"
COMMAND_CONFIG_VARIABLE: Final = "QUORATE_COMMAND_CONFIG"
_CHOSEN: Final = "quorate.profile"
_KEYS: Final = (
    "bootstrap-server",
    "data",
    "grpc-server",
    "command-config",
    "bootstrap-controller",
)


class Place(NamedTuple):
    """Where a cluster is, and who the caller is there. The fields are named like the options."""

    bootstrap_server: str | None = None
    data: Path | None = None
    grpc_server: str | None = None
    command_config: Path | None = None
    bootstrap_controller: str | None = None


def profile_option(command: Command) -> Command:
    """Add ``--profile``."""
    return click.option(
        "--profile",
        metavar="NAME",
        expose_value=False,
        callback=_remember_profile,
        help="Profile of the configuration file that names the cluster. Default: the one of "
        f"{PROFILE_VARIABLE}, or of the file itself.",
    )(command)


def default_place() -> Place:
    """Return where to go when the options do not say: --profile, else variables, else the profile
    of QUORATE_PROFILE or of the configuration file.

    Raises:
        ConfigError: the file cannot be read, or there is no such profile.
    """
    context = click.get_current_context(silent=True)
    chosen = None if context is None else context.meta.get(_CHOSEN)
    if chosen is not None:
        return _profile(chosen)
    given = _from_variables()
    if given.bootstrap_server or given.data or given.grpc_server or given.bootstrap_controller:
        return given
    place = _profile(os.environ.get(PROFILE_VARIABLE))
    return place._replace(command_config=given.command_config or place.command_config)


def _from_variables() -> Place:
    values = {key: os.environ[name] for key in _KEYS if os.environ.get(name := _variable(key))}
    return _place(values, Path())


def _variable(key: str) -> str:
    return f"QUORATE_{key.replace('-', '_').upper()}"


def _profile(name: str | None) -> Place:
    """Return the profile of that name, or the one that the file chooses; an empty place if there
    is none."""
    from quorate.common.configuration import ConfigError

    path = _config_path()
    document = _read(path)
    profiles = document.get("profiles", {})
    name = name or document.get("profile")
    if name is None:
        return Place()
    if not isinstance(profiles, Mapping) or not isinstance(profiles.get(name), Mapping):
        known = ", ".join(profiles) if isinstance(profiles, Mapping) and profiles else "none"
        raise ConfigError(f"{path} has no profile {name!r}: there are {known}")
    values = profiles[name]
    for key, value in values.items():
        if key not in _KEYS or not isinstance(value, str):
            near = get_close_matches(key, _KEYS, 1)
            hint = (
                f"did you mean {near[0]}?"
                if near and key not in _KEYS
                else (f"a profile has texts for {', '.join(_KEYS)}")
            )
            raise ConfigError(f"{path}, profile {name!r}: {key}={value!r}: {hint}")
    return _place(values, path.parent)


def _place(values: Mapping[str, str], folder: Path) -> Place:
    fields: dict[str, Any] = {key.replace("-", "_"): value for key, value in values.items()}
    for field in ("data", "command_config"):
        if field in fields:
            fields[field] = folder / Path(fields[field]).expanduser()
    return Place(**fields)


def _config_path() -> Path:
    if given := os.environ.get(CONFIG_VARIABLE):
        return Path(given)
    base = os.environ.get("XDG_CONFIG_HOME") or Path("~/.config").expanduser()
    return Path(base) / "quorate" / "config.toml"


def _read(path: Path) -> Mapping[str, Any]:
    from quorate.cli.toml_files import read_tables

    if not path.exists() and CONFIG_VARIABLE not in os.environ:
        return {}
    return read_tables(path)


def _remember_profile(
    context: click.Context, _parameter: click.Parameter, value: str | None
) -> None:
    context.meta[_CHOSEN] = value
