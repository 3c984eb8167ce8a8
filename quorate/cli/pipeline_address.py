"""Which pipeline of which cluster: its file tells, or a name and the cluster's address."""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from quorate.cli.admin import open_admin
from quorate.cli.options import admin_options, client_options, resolve_bootstrap

if TYPE_CHECKING:
    from quorate.client.admin import AdminClient
    from quorate.pipeline.config import PipelineConfig
    from quorate.spark.options.connection import Connection


class PipelineAddress(NamedTuple):
    """``config``: of its file; else ``name`` and the options of every command."""

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
        help="The pipeline's file, in TOML.",
    )(command)


def pipeline_options(command: Callable[..., None]) -> Callable[..., None]:
    """``--config``, or ``--name`` and the cluster's options; the command gets ``where``."""

    @config_option
    @click.option("--name", metavar="NAME", help="Instead of --config: the pipeline's name.")
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
    """
    Raises:
        ConfigError: it cannot be read, or something in it is wrong.
    """
    with needs_spark():
        from quorate.pipeline.config import read_config

    return read_config(path)


def open_keeper(where: PipelineAddress) -> "AdminClient":
    """The admin client of the pipeline's cluster; close it."""
    if where.config is None:
        return open_admin(where.bootstrap_server, where.data)
    with needs_spark():
        from quorate.pipeline.execute import admin_of

    return admin_of(where.config)


def connection_of(where: PipelineAddress) -> "Connection":
    """To read offsets by."""
    if where.config is not None:
        return where.config.source.reading.connection
    from quorate.client.security import read_options
    from quorate.spark.options.connection import Connection

    bootstrap = resolve_bootstrap(where.bootstrap_server, where.data)
    return Connection(bootstrap, read_options(client_options()))


@contextmanager
def needs_spark() -> Iterator[None]:
    """What is imported inside comes with Spark.

    Raises:
        PipelineError: it is not installed.
    """
    try:
        yield
    except ImportError as error:
        from quorate.client.errors import QuorateError

        raise QuorateError(
            f"pipelines need Spark: pip install 'quorate[spark]' ({error})"
        ) from error
