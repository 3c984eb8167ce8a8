"""``quorate down``: stops the local cluster of a folder."""

import time
from pathlib import Path

import click

from quorate.cli.output import echo
from quorate.cli.profiles import DATA_VARIABLE
from quorate.cli.shared_options import DEFAULT_DATA, json_option, print_json


@click.command()
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    default=DEFAULT_DATA,
    envvar=DATA_VARIABLE,
    show_default=True,
    metavar="DIR",
    help="Folder of the local cluster.",
)
@json_option
def down(data: Path, as_json: bool) -> None:
    """Stop the local cluster: a table service, the brokers, then the voters. Its data are kept.

    \b
    Example:
      quorate down --data ./quorate-data
    """
    from quorate.cluster.local import LocalCluster
    from quorate.cluster.local_cluster_errors import LocalClusterError
    from quorate.cluster.table_process import TableProcess

    cluster = LocalCluster.find(data, _say, attached=False)
    if cluster is None:
        raise LocalClusterError(f"{data} holds no Quorate cluster: give its folder with --data")
    begin = time.monotonic()
    TableProcess(data).stop()
    stopped = cluster.stop()
    if as_json:
        print_json({"stopped": [str(node) for node in stopped]})
    elif stopped:
        echo(f"stopped {len(stopped)} processes in {time.monotonic() - begin:.1f} s")
    else:
        echo(f"nothing is running in {data}")


def _say(message: str) -> None:
    echo(message, err=True)
