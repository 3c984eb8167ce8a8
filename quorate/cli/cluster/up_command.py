"""``quorate up``: starts a local cluster of real processes."""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final

import click

from quorate.cli.cluster.cluster_file import CLUSTER_FILE, Shape, read_cluster_file
from quorate.cli.output import echo
from quorate.cli.profiles import DATA_VARIABLE
from quorate.cli.shared_options import DEFAULT_DATA, json_option, print_json

if TYPE_CHECKING:
    from quorate.cluster.local import LocalCluster
    from quorate.cluster.settings import Settings

DEFAULT_VOTERS: Final = 3
DEFAULT_BROKERS: Final = 3
DEFAULT_PORT: Final = 9092
WATCH_INTERVAL_S: Final = 0.3


@click.command()
@click.option(
    "--quorum", type=click.IntRange(1, 9), metavar="N", help="Number of voters. Default: 3."
)
@click.option(
    "--brokers", type=click.IntRange(1, 100), metavar="N", help="Number of brokers. Default: 3."
)
@click.option(
    "--brokers-per-host",
    type=click.IntRange(1, 100),
    metavar="N",
    help="Number of brokers that count as one host: they are in one rack, and no two replicas of a "
    "partition are on one host while there are enough hosts. Default: brokers have no rack.",
)
@click.option(
    "--first-broker-id",
    type=click.IntRange(0, 1_000_000),
    metavar="ID",
    help="Id of the first broker; the others have the ids after it. Default: 1.",
)
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    envvar=DATA_VARIABLE,
    metavar="DIR",
    help="Folder for everything that the cluster writes. A later start in the same folder "
    f"continues the same cluster; while it runs, it starts what has died. Default: {DEFAULT_DATA}.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    metavar="PORT",
    help="Kafka port of the first broker; the others use the ports after it. 0 chooses free "
    "ports. Default: 9092.",
)
@click.option(
    "--detach", is_flag=True, help="Return once the cluster is up. Use quorate down to stop it."
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="A configuration value for the voters and brokers that have this key. It is kept in the "
    "folder.",
)
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="TOML file that describes the cluster: quorum, brokers, brokers-per-host, "
    "first-broker-id, port, data, and configuration values in a table [set]. Options override it. "
    f"Default: ./{CLUSTER_FILE} if there is one.",
)
@click.option(
    "--tables",
    "with_tables",
    is_flag=True,
    help="Start a table service as well: topics with table.format are kept as tables in "
    "DIR/tables/warehouse.",
)
@json_option
def up(
    quorum: int | None,
    brokers: int | None,
    brokers_per_host: int | None,
    first_broker_id: int | None,
    data: Path | None,
    port: int | None,
    detach: bool,
    settings: tuple[str, ...],
    config_file: Path | None,
    with_tables: bool,
    as_json: bool,
) -> int:
    """Start a local cluster of real processes.

    With --detach, the command returns once every broker is registered and a controller is active.
    Without --detach it stays in the foreground, and Ctrl-C stops the cluster.

    \b
    Example:
      quorate up --quorum 3 --brokers 3 --data ./quorate-data --detach
      quorate up --brokers 1 --quorum 1 --port 0 --set log.flush=os
      quorate up --brokers 6 --brokers-per-host 2 --detach
      quorate up --config three-hosts.toml
      quorate up --tables --detach
    """
    from quorate.cluster.fork_server.fork_servers import load_fork_servers

    load_fork_servers(http=True)
    from quorate.cluster.settings import check_settings, split_pairs
    from quorate.cluster.table_process import TableProcess

    described = read_cluster_file(config_file)
    shape = Shape(quorum, brokers, brokers_per_host, first_broker_id, port)
    shape = Shape(
        *(
            given if given is not None else planned
            for given, planned in zip(shape, described.shape, strict=True)
        )
    )
    data = data or described.data or DEFAULT_DATA
    values = {**described.settings, **split_pairs(settings)}
    cluster = _cluster(data, shape, check_settings(values), attached=not detach)
    begin = time.monotonic()
    with _stop_signals_interrupt():
        cluster.start()
        seconds = time.monotonic() - begin
        tables = TableProcess(data)
        if with_tables:
            tables.start(attached=not detach)
        if detach:
            _report(cluster, data, seconds, detach=True, as_json=as_json)
            return 0
        try:
            _report(cluster, data, seconds, detach=False, as_json=as_json)
            _watch(cluster)
        except KeyboardInterrupt:
            tables.stop()
            _stop(cluster)
            raise
        tables.stop()
        _stop(cluster)
        return 1


def _cluster(data: Path, shape: Shape, settings: "Settings", *, attached: bool) -> "LocalCluster":
    """Return the cluster of the folder with the settings applied, or create a new one."""
    from quorate.cluster.fork_server.fork_servers import spawn_forked
    from quorate.cluster.layout import FIRST_BROKER_ID
    from quorate.cluster.local import LocalCluster

    found = LocalCluster.find(data, _say, attached=attached, spawner=spawn_forked)
    if found is None:
        return LocalCluster.create(
            data,
            voters=DEFAULT_VOTERS if shape.voters is None else shape.voters,
            brokers=DEFAULT_BROKERS if shape.brokers is None else shape.brokers,
            port=DEFAULT_PORT if shape.port is None else shape.port,
            settings=settings,
            progress=_say,
            attached=attached,
            brokers_per_host=shape.brokers_per_host,
            first_broker_id=FIRST_BROKER_ID
            if shape.first_broker_id is None
            else shape.first_broker_id,
            has_console=True,
            spawner=spawn_forked,
        )
    _refuse_other_shape(found, data, shape)
    if settings.quorum or settings.broker:
        found.change_settings(settings)
    return found


def _refuse_other_shape(found: "LocalCluster", data: Path, shape: Shape) -> None:
    from quorate.cluster.local_cluster_errors import LocalClusterError

    first_port = found.brokers[0].ports["Kafka"]
    for option, wanted, actual in (
        ("--quorum", shape.voters, len(found.voters)),
        ("--brokers", shape.brokers, len(found.brokers)),
        ("--brokers-per-host", shape.brokers_per_host, found.brokers_per_host),
        ("--first-broker-id", shape.first_broker_id, found.brokers[0].id),
        ("--port", shape.port or None, first_port),
    ):
        if wanted is not None and wanted != actual:
            made = f"without {option}" if actual is None else f"with {option} {actual}"
            raise LocalClusterError(
                f"{data} holds a cluster made {made}, not {wanted}: "
                f"leave {option} out, or give another folder with --data"
            )


def _say(message: str) -> None:
    echo(message, err=True)


def _report(
    cluster: "LocalCluster", data: Path, seconds: float, *, detach: bool, as_json: bool
) -> None:
    from quorate.cluster.state_file import read_state

    if as_json:
        print_json(read_state(cluster.folder))
        return
    echo(f"up in {seconds:.1f} s. Kafka clients connect to {cluster.bootstrap}")
    if cluster.console_url:
        echo(f"the console: {cluster.console_url}")
    echo(f"stop it with: quorate down --data {data}" if detach else "Ctrl-C stops it.")


def _watch(cluster: "LocalCluster") -> None:
    """Report each process that ends, until none is left."""
    gone: set[str] = set()
    while running := set(map(str, cluster.running())):
        for node in sorted(set(map(str, cluster.nodes)) - running - gone):
            _say(f"{node} is gone; see {cluster.folder / 'logs'}")
        gone = set(map(str, cluster.nodes)) - running
        time.sleep(WATCH_INTERVAL_S)
    _say("every process is gone")


def _stop(cluster: "LocalCluster") -> None:
    """Stop the cluster in order; a second Ctrl-C kills its processes."""
    try:
        cluster.stop()
    except KeyboardInterrupt:
        cluster.stop(graceful=False)


@contextmanager
def _stop_signals_interrupt() -> Iterator[None]:
    """Make SIGTERM and a closed terminal stop the cluster in the same way as Ctrl-C.

    The handler for Ctrl-C is also set again, because a shell script starts its background jobs with
    that signal ignored.
    """

    def interrupt(signal_number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    previous = {
        number: signal.signal(number, interrupt)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
