"""Options that every command shares, and what they mean."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])

DEFAULT_DATA: Final = Path("quorate-data")


def cluster_options(command: Command) -> Command:
    """``--bootstrap-server`` and ``--data``; the command gets ``bootstrap_server``, ``data``."""
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


def json_option(command: Command) -> Command:
    """``--json``; the command gets ``as_json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON for scripts.")(command)


def timeout_option(default_ms: int) -> Callable[[Command], Command]:
    """``--timeout-ms``: how long to try."""
    return click.option(
        "--timeout-ms",
        type=click.IntRange(min=1),
        default=default_ms,
        show_default=True,
        help="How long to try.",
    )


def resolve_bootstrap(bootstrap_server: str | None, data: Path | None) -> str:
    """Kafka bootstrap addresses from the two options, or from the default folder.

    Raises:
        click.UsageError: both were given, or neither and no local cluster is there.
        LocalClusterError: no cluster runs in the folder.
    """
    from quorate.cluster.errors import LocalClusterError
    from quorate.cluster.state_file import read_state

    if bootstrap_server and data:
        raise click.UsageError("give --bootstrap-server or --data, not both")
    if bootstrap_server:
        return bootstrap_server
    state = read_state(data or DEFAULT_DATA)
    if state is not None:
        return str(state["bootstrap"])
    if data is None:
        raise click.UsageError(
            f"which cluster? Give --bootstrap-server HOST:PORT or --data DIR "
            f"(no cluster runs in ./{DEFAULT_DATA})"
        )
    raise LocalClusterError(
        f"no cluster runs in {data}: start one with `quorate up --data {data} --detach`"
    )


def key_values(pairs: tuple[str, ...], option: str) -> dict[str, str]:
    """``key=value`` strings of a repeated option.

    Raises:
        click.UsageError: one has no ``=``.
    """
    values: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise click.UsageError(f"{option} {pair}: must be key=value")
        values[key.strip()] = value.strip()
    return values


def print_json(value: object) -> None:
    click.echo(json.dumps(value, indent=2))
