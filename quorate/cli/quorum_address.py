"""Where the voters are, and who asks, for commands that talk to the quorum and not to a broker."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from quorate.cli.options import DEFAULT_DATA, Command

if TYPE_CHECKING:
    from quorum.security import Security


def quorum_address_options(command: Command) -> Command:
    """``--bootstrap-controller``, ``--data``, ``--command-config``; the command gets them all."""
    command = click.option(
        "--command-config",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help="security.protocol, ssl.keystore.location and ssl.truststore.location, in TOML or as "
        "key=value lines. With --data, the local cluster's own certificate is used.",
    )(command)
    command = click.option(
        "--data",
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="Folder of a local cluster; its cluster.json tells where the voters listen. "
        f"Default: ./{DEFAULT_DATA} if a cluster runs there.",
    )(command)
    return click.option(
        "--bootstrap-controller",
        metavar="HOST:PORT,…",
        help="gRPC address of one or more voters of the quorum.",
    )(command)


def resolve_voters(bootstrap_controller: str | None, data: Path | None) -> list[str]:
    """gRPC addresses of voters from the two options, or from the default folder.

    Raises:
        click.UsageError: both were given, or neither and no local cluster is there.
        LocalClusterError: no cluster runs in the folder.
    """
    from quorate.cluster.errors import LocalClusterError
    from quorate.cluster.state_file import read_state

    if bootstrap_controller and data:
        raise click.UsageError("give --bootstrap-controller or --data, not both")
    if bootstrap_controller:
        return [address.strip() for address in bootstrap_controller.split(",")]
    state = read_state(data or DEFAULT_DATA)
    if state is not None:
        return [str(voter["address"]) for voter in state["quorum"]]
    if data is None:
        raise click.UsageError(
            f"which quorum? Give --bootstrap-controller HOST:PORT or --data DIR "
            f"(no cluster runs in ./{DEFAULT_DATA})"
        )
    raise LocalClusterError(
        f"no cluster runs in {data}: start one with `quorate up --data {data} --detach`"
    )


def resolve_security(
    bootstrap_controller: str | None, data: Path | None, command_config: Path | None
) -> "Security | None":
    """The caller's certificates: of the file, or else of the local cluster.

    None: plain text, which voters speak on loopback only, if at all.

    Raises:
        ConfigError: the file or the certificates cannot be used; says what to do.
    """
    if command_config is not None:
        from quorum.security_config import command_security

        return command_security(command_config)
    if bootstrap_controller is not None:
        return None
    from quorate.cluster.certificates import admin_security

    return admin_security(data or DEFAULT_DATA)
