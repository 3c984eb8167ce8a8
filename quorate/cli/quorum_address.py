"""Where the voters are, for commands that talk to the quorum and not to a broker."""

from pathlib import Path

import click

from quorate.cli.options import DEFAULT_DATA, Command


def quorum_address_options(command: Command) -> Command:
    """``--bootstrap-controller`` and ``--data``; the command gets them as arguments."""
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
