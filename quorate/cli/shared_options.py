"""The options that all commands share, and how their values are used."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from quorate.cli.output import echo_json
from quorate.cli.profiles import COMMAND_CONFIG_VARIABLE, default_place, profile_option

Command = TypeVar("Command", bound=Callable[..., Any])

DEFAULT_DATA: Final = Path("quorate-data")

_COMMAND_CONFIG: Final = "quorate.command_config"
_PROFILE_CONFIG: Final = "quorate.profile_config"
_FOLDER: Final = "quorate.folder"
_GRPC_SERVERS: Final = "quorate.grpc_servers"
_LOCAL_GRPC: Final = "quorate.local_grpc"


def cluster_options(command: Command) -> Command:
    """Add ``--bootstrap-server``, ``--data``, ``--command-config`` and ``--profile``.

    The command receives ``bootstrap_server`` and ``data``; ``client_options`` reads the third one.
    """
    command = profile_option(command)
    command = click.option(
        "--command-config",
        type=click.Path(path_type=Path, dir_okay=False),
        envvar=COMMAND_CONFIG_VARIABLE,
        metavar="FILE",
        expose_value=False,
        callback=_remember_command_config,
        help="File with security.protocol, ssl.ca.location, sasl.username and similar options, "
        "in TOML or as key=value lines. With --data, the local cluster's own certificates "
        "are used.",
    )(command)
    command = click.option(
        "--data",
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="Folder of a local cluster; its cluster.json tells where it listens. "
        f"Default: ./{DEFAULT_DATA} if a cluster runs there.",
    )(command)
    return click.option(
        "--bootstrap-server",
        metavar="HOST:PORT,…",
        help="Kafka address of one or more brokers.",
    )(command)


def admin_options(command: Command) -> Command:
    """Add ``cluster_options`` and ``--grpc-server``, for commands that use ``open_admin``."""
    return cluster_options(
        click.option(
            "--grpc-server",
            metavar="HOST:PORT,…",
            expose_value=False,
            callback=_remember_grpc_servers,
            help="grpc.listener of one or more brokers, given instead of Kafka addresses. Use it "
            "to add the first user, while the Kafka listeners do not let anybody in.",
        )(command)
    )


def json_option(command: Command) -> Command:
    """Add ``--json``; the command receives it as ``as_json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON for scripts.")(command)


def timeout_option(default_ms: int) -> Callable[[Command], Command]:
    """Add ``--timeout-ms``, the time after which the command gives up."""
    return click.option(
        "--timeout-ms",
        type=click.IntRange(min=1),
        default=default_ms,
        show_default=True,
        help="Time after which the command gives up.",
    )


def resolve_bootstrap(bootstrap_server: str | None, data: Path | None) -> str:
    """Return the Kafka bootstrap addresses from the two options, from variables or a profile
    (``profiles``), or from the default folder.

    Raises:
        click.UsageError: both were given, or neither was given and there is no local cluster.
        LocalClusterError: no cluster runs in the folder.
        ConfigError: the file of profiles cannot be used.
    """
    from quorate.cluster.local_cluster_errors import LocalClusterError
    from quorate.cluster.state_file import read_state

    if bootstrap_server and data:
        raise click.UsageError("give --bootstrap-server or --data, not both")
    if not bootstrap_server and not data:
        place = default_place()
        bootstrap_server, data = place.bootstrap_server, place.data
        _meta()[_PROFILE_CONFIG] = place.command_config
        if bootstrap_server and data:
            raise click.UsageError(
                f"bootstrap server {bootstrap_server} and data {data} are both set by variables or "
                "by the profile: set one of them"
            )
    if bootstrap_server:
        return bootstrap_server
    state = read_state(data or DEFAULT_DATA)
    if state is not None:
        meta = _meta()
        meta[_FOLDER] = data or DEFAULT_DATA
        meta[_LOCAL_GRPC] = [one["grpc"] for one in state.get("brokers", ()) if "grpc" in one]
        return str(state["bootstrap"])
    if data is None:
        raise click.UsageError(
            f"which cluster? Give --bootstrap-server HOST:PORT or --data DIR, or set "
            f"QUORATE_BOOTSTRAP_SERVER (no cluster runs in ./{DEFAULT_DATA})"
        )
    raise LocalClusterError(
        f"no cluster runs in {data}: start one with `quorate up --data {data} --detach`"
    )


def given_grpc_servers() -> list[str]:
    """Return the addresses of --grpc-server; empty if the option was not given."""
    found: list[str] = _meta().get(_GRPC_SERVERS, [])
    return found


def default_grpc_servers() -> list[str]:
    """Return the gRPC addresses that variables or a profile name instead of Kafka addresses."""
    place = default_place()
    if not place.grpc_server or place.bootstrap_server or place.data:
        return []
    _meta()[_PROFILE_CONFIG] = place.command_config
    return _grpc_addresses(place.grpc_server)


def local_grpc_addresses() -> list[str]:
    """Return the gRPC addresses of the local cluster that ``resolve_bootstrap`` found, if any."""
    found: list[str] = _meta().get(_LOCAL_GRPC, [])
    return found


def client_options() -> dict[str, str]:
    """Return the security options for the brokers that ``resolve_bootstrap`` found.

    They come from --command-config, or else from the profile that named the brokers, or from the
    folder of the local cluster.

    Raises:
        ConfigError: a file cannot be read.
    """
    meta = _meta()
    given = meta.get(_COMMAND_CONFIG) or meta.get(_PROFILE_CONFIG)
    if given is not None:
        return read_client_options(given)
    if (folder := meta.get(_FOLDER)) is None:
        return {}
    from quorate.cluster.client_options import client_options_of

    return client_options_of(folder)


def kafka_options() -> dict[str, str]:
    """Return ``client_options`` under the names of librdkafka."""
    from quorate.client.librdkafka_options import as_librdkafka

    return as_librdkafka(client_options())


def read_client_options(path: Path) -> dict[str, str]:
    """Return the security options of a file; errors are those of ``client_options``."""
    from quorate.common.tls.tls_config import command_values

    return {key: str(value) for key, value in command_values(path).items()}


def _remember_command_config(
    context: click.Context, _parameter: click.Parameter, value: Path | None
) -> None:
    context.meta[_COMMAND_CONFIG] = value


def _remember_grpc_servers(
    context: click.Context, _parameter: click.Parameter, value: str | None
) -> None:
    context.meta[_GRPC_SERVERS] = [] if value is None else _grpc_addresses(value)


def _grpc_addresses(value: str) -> list[str]:
    servers = [one.strip() for one in value.split(",") if one.strip()]
    if not servers or any(":" not in one for one in servers):
        raise click.UsageError(f"--grpc-server {value}: must be host:port,host:port")
    return servers


def _meta() -> dict[str, Any]:
    """Return what the options of the running command have stored; empty outside of a command."""
    context = click.get_current_context(silent=True)
    return {} if context is None else context.meta


def key_values(pairs: tuple[str, ...], option: str) -> dict[str, str]:
    """Parse the ``key=value`` strings of a repeated option.

    Raises:
        click.UsageError: a string has no ``=``.
    """
    values: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise click.UsageError(f"{option} {pair}: must be key=value")
        values[key.strip()] = value.strip()
    return values


def print_json(value: object) -> None:
    echo_json(value, indent=2)
