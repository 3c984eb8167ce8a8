"""The address of a pipeline: its configuration file, or its name and the address of its cluster."""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from quorate.cli.admin_session import open_admin
from quorate.cli.shared_options import admin_options, client_options, resolve_bootstrap

if TYPE_CHECKING:
    from quorate.client.admin import AdminClient
    from quorate.pipeline.pipeline_config import PipelineConfig
    from quorate.spark.options.connection_options import ConnectionOptions


class PipelineAddress(NamedTuple):
    """The pipeline that a command works on.

    It is named by its configuration file, ``config``, or by ``name`` and the options of every
    command.
    """

    config: "PipelineConfig | None"
    name: str | None
    bootstrap_server: str | None
    data: Path | None


def config_option(command: Callable[..., None]) -> Callable[..., None]:
    return click.option(
        "--config",
        "file",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help="Configuration file of the pipeline, in TOML.",
    )(command)


def pipeline_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add ``--config``, ``--name`` and the cluster's options; the command receives them as
    ``where``."""

    @config_option
    @click.option("--name", metavar="NAME", help="Name of the pipeline, given instead of --config.")
    @admin_options
    @functools.wraps(command)
    def with_address(
        file: Path | None,
        name: str | None,
        bootstrap_server: str | None,
        data: Path | None,
        **others: Any,  # noqa: ANN401 - the command's own
    ) -> None:
        if file is not None and (name or bootstrap_server or data):
            raise click.UsageError("give --config, or --name and a cluster, not both")
        config = None if file is None else read_file(file)
        known = name if config is None else config.name
        command(where=PipelineAddress(config, known, bootstrap_server, data), **others)

    return with_address


def require_name(where: PipelineAddress) -> str:
    if where.name is None:
        raise click.UsageError("which pipeline? Give --config FILE or --name NAME")
    return where.name


def read_file(path: Path) -> "PipelineConfig":
    """Read the configuration file of a pipeline.

    Raises:
        ConfigError: the file cannot be read, or a value in it is wrong.
    """
    with needs_spark():
        from quorate.pipeline.pipeline_config import read_config

    return read_config(path)


def open_keeper(where: PipelineAddress) -> "AdminClient":
    """Return the admin client of the pipeline's cluster; the caller closes it."""
    if where.config is None:
        return open_admin(where.bootstrap_server, where.data)
    with needs_spark():
        from quorate.pipeline.run_setup import admin_of

    return admin_of(where.config)


def connection_of(where: PipelineAddress) -> "ConnectionOptions":
    """Return the connection options with which offsets are read."""
    if where.config is not None:
        return where.config.source.reading.connection
    from quorate.client.security import read_options
    from quorate.spark.options.connection_options import ConnectionOptions

    bootstrap = resolve_bootstrap(where.bootstrap_server, where.data)
    return ConnectionOptions(bootstrap, read_options(client_options()))


@contextmanager
def needs_spark() -> Iterator[None]:
    """Run a block whose imports need Spark.

    Raises:
        PipelineError: Spark is not installed.
    """
    try:
        yield
    except ImportError as error:
        from quorate.client.errors import QuorateError

        raise QuorateError(
            f"pipelines need Spark: pip install 'quorate[spark]' ({error})"
        ) from error
