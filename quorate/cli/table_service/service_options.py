"""The options of commands that open tables: the file of the service, and single settings."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from quorate.cli.shared_options import (
    DEFAULT_DATA,
    client_options,
    cluster_options,
    key_values,
    resolve_bootstrap,
)

if TYPE_CHECKING:
    from quorate.spark.options.connection_options import ConnectionOptions
    from quorate.tables.service.service_config import ServiceConfig


def service_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add ``--config``, ``--set`` and the cluster's options."""
    command = click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="KEY=VALUE",
        help="A configuration value of the service, such as tables.warehouse=/data/lake or "
        "catalog.uri=…; it goes before the file.",
    )(command)
    command = click.option(
        "--config",
        "file",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help="Configuration file of the table service, in TOML. For a local cluster the default is "
        "DIR/tables/tables.toml, if there is one.",
    )(command)
    return cluster_options(command)


def service_config(
    file: Path | None, settings: tuple[str, ...], bootstrap_server: str | None, data: Path | None
) -> "ServiceConfig":
    """Return the configuration that the options name.

    Raises:
        ConfigError: the file cannot be read, or a value is wrong.
    """
    with needs_tables():
        from quorate.tables.service.service_config import WAREHOUSE, read_service_config

    bootstrap = resolve_bootstrap(bootstrap_server, data)
    given = key_values(settings, "--set")
    defaults: dict[str, str] = {}
    if bootstrap_server is None:
        defaults = _registry_of(data or DEFAULT_DATA)
        folder = (data or DEFAULT_DATA) / "tables"
        own = folder / "tables.toml"
        if file is None and own.exists():
            file = own
        elif file is None:
            given = {WAREHOUSE.name: str((folder / "warehouse").resolve()), **given}
    return read_service_config(
        file,
        bootstrap_servers=bootstrap,
        security=client_options(),
        settings=given,
        defaults=defaults,
    )


def _registry_of(folder: Path) -> dict[str, str]:
    """Return the setting that names the registry of the local cluster, if it has one."""
    from quorate.cluster.state_file import read_state
    from quorate.spark.options.option_table import REGISTRY_URL

    state = read_state(folder)
    if state is None or "registry" not in state:
        return {}
    return {f"source.{REGISTRY_URL.name}": str(state["registry"])}


def connection_to(bootstrap_server: str | None, data: Path | None) -> "ConnectionOptions":
    """Return the options with which offsets are read."""
    from quorate.client.security import read_options
    from quorate.spark.options.connection_options import ConnectionOptions

    bootstrap = resolve_bootstrap(bootstrap_server, data)
    return ConnectionOptions(bootstrap, read_options(client_options()))


@contextmanager
def needs_tables() -> Iterator[None]:
    """Run a block whose imports need the libraries of tables.

    Raises:
        QuorateError: they are not installed.
    """
    try:
        yield
    except ImportError as error:
        from quorate.client.errors import QuorateError

        raise QuorateError(
            f"tables need more: pip install 'quorate[spark,tables]' ({error})"
        ) from error
