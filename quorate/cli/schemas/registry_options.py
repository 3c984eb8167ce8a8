"""Where the schema registry is, and who asks it."""

import functools
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import click

from quorate.cli.shared_options import (
    DEFAULT_DATA,
    Command,
    read_client_options,
    timeout_option,
)

if TYPE_CHECKING:
    from quorate.client.schema_registry import SchemaRegistry

_TIMEOUT_MS: Final = 30_000


def registry_options(command: Command) -> Command:
    """Add ``--registry``, ``--data``, ``--command-config`` and ``--timeout-ms``. The command gets a
    client of the registry as ``asked``."""

    @functools.wraps(command)
    def opened(
        *,
        registry: str | None,
        data: Path | None,
        command_config: Path | None,
        timeout_ms: int,
        **others: object,
    ) -> object:
        asked = open_registry(registry, data, command_config, timeout_ms)
        return command(asked=asked, **others)

    made = timeout_option(_TIMEOUT_MS)(opened)
    made = click.option(
        "--command-config",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help="File with sasl.username and sasl.password for a login, ssl.ca.location and "
        "ssl.certificate.location for https, in TOML or as key=value lines.",
    )(made)
    made = click.option(
        "--data",
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="Folder of a local cluster; its cluster.json tells where the registry is. "
        f"Default: ./{DEFAULT_DATA} if a cluster runs there.",
    )(made)
    made = click.option(
        "--registry",
        metavar="URL,…",
        help="URL of the registry at one or more brokers, such as http://127.0.0.1:8081.",
    )(made)
    return cast("Command", made)


def open_registry(
    registry: str | None, data: Path | None, command_config: Path | None, timeout_ms: int
) -> "SchemaRegistry":
    """Return a client of the registry that the options name.

    Raises:
        click.UsageError: none is named, and there is no local cluster.
        LocalClusterError: the cluster in the folder has none.
    """
    from quorate.client.schema_registry import SchemaRegistry

    options = {} if command_config is None else read_client_options(command_config)
    return SchemaRegistry(
        _urls(registry, data),
        timeout_ms=timeout_ms,
        username=options.get("sasl.username", ""),
        password=options.get("sasl.password", ""),
        tls=_tls(options),
    )


def _urls(registry: str | None, data: Path | None) -> list[str]:
    from quorate.cluster.local_cluster_errors import LocalClusterError
    from quorate.cluster.state_file import read_state

    if registry and data:
        raise click.UsageError("give --registry or --data, not both")
    if registry:
        return [one.strip() for one in registry.split(",") if one.strip()]
    folder = data or DEFAULT_DATA
    state = read_state(folder)
    if state is None:
        raise click.UsageError(
            f"which registry? Give --registry URL or --data DIR (no cluster runs in {folder})"
        )
    if "registry" not in state:
        raise LocalClusterError(
            f"the cluster in {folder} does not serve a schema registry: start it with "
            "`quorate up --set registry.listener=http://127.0.0.1:0`"
        )
    return str(state["registry"]).split(",")


def _tls(options: Mapping[str, str]) -> ssl.SSLContext | None:
    if "ssl.ca.location" not in options:
        return None
    context = ssl.create_default_context(cafile=options["ssl.ca.location"])
    certificate = options.get("ssl.certificate.location")
    if certificate:
        context.load_cert_chain(certificate, options.get("ssl.key.location") or certificate)
    return context
