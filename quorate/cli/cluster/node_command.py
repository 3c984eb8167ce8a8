"""``quorate node``: runs a voter, a broker, or the brokers of a host, for a service manager."""

import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click

from quorate.cli.output import echo
from quorate.cli.shared_options import Command, key_values

Program = Callable[[Path, dict[str, Any]], int]
"""Runs a node with a configuration file and the values that override it; returns an exit code."""


@click.group()
def node() -> None:
    """Run one voter, one broker or the brokers of a host in the foreground.

    \b
    Example:
      quorate node quorum --config quorum-1.toml
      quorate node broker --config broker-1.toml --set log.level=DEBUG
      quorate node brokers --config broker-11.toml --config broker-12.toml
    """


def _settings_option(command: Command) -> Command:
    return click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="KEY=VALUE",
        help="A configuration value that overrides the file.",
    )(command)


def _node_options(command: Command) -> Command:
    command = _settings_option(command)
    command = click.option("--exit-with-parent", is_flag=True, hidden=True)(command)
    return click.option(
        "--config",
        required=True,
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="TOML file with Kafka's configuration keys at the top level.",
    )(command)


def load_voter() -> Program:
    """Load the code of a voter, and return the function that runs one."""
    from quorate.common.grpc_support.grpc_log import trace_handshakes

    trace_handshakes()
    from quorate.quorum.process import run

    return run


def load_broker() -> Program:
    """Load the code of a broker, and return the function that runs one."""
    # kio imports hypothesis wherever it is installed, which doubles the time to start a broker.
    sys.modules.setdefault("hypothesis", None)  # type: ignore[arg-type]
    from quorate.broker.rpc.grpc_polling import read_in_the_polling_thread
    from quorate.common.grpc_support.grpc_log import trace_handshakes

    read_in_the_polling_thread()
    trace_handshakes()
    from quorate.broker.process import run

    return run


def _run(
    run: Program,
    config: Path,
    settings: tuple[str, ...],
    *,
    exit_with_parent: bool,
) -> int:
    if exit_with_parent:
        _watch_parent()
    return run(config, key_values(settings, "--set"))


def _watch_parent() -> None:
    threading.Thread(target=_stop_at_end_of_input, daemon=True, name="parent-watch").start()


def _stop_at_end_of_input() -> None:
    """Stop the node when its standard input ends.

    Standard input is a pipe from the parent process. It ends when the parent ends, even by kill -9.
    """
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


@node.command("quorum")
@_node_options
def quorum_node(config: Path, settings: tuple[str, ...], exit_with_parent: bool) -> int:
    """Run one voter of the metadata quorum.

    \b
    Example (quorum-1.toml):
      "node.id" = 1
      "cluster.id" = "my-cluster"
      "data.dir" = "/var/lib/quorate/quorum-1"
      "quorum.voters" = "1@host1:7001/7101,2@host2:7001/7101,3@host3:7001/7101"
      "ssl.keystore.location" = "/etc/quorate/voter-1.pem"
      "ssl.truststore.location" = "/etc/quorate/truststore.pem"
    """
    return _run(load_voter(), config, settings, exit_with_parent=exit_with_parent)


@node.command("broker")
@_node_options
def broker_node(config: Path, settings: tuple[str, ...], exit_with_parent: bool) -> int:
    """Run one broker.

    \b
    Example (broker-1.toml):
      "broker.id" = 1
      "log.dir" = "/var/lib/quorate/broker-1"
      "quorum.bootstrap.servers" = "host1:7101,host2:7101,host3:7101"
      "quorum.ssl.keystore.location" = "/etc/quorate/broker-1.pem"
      "quorum.ssl.truststore.location" = "/etc/quorate/truststore.pem"
      "listeners" = "PLAINTEXT://host1:9092"
      "grpc.listener" = "host1:9192"
      "inter.broker.listener" = "host1:9193"
    """
    return _run(load_broker(), config, settings, exit_with_parent=exit_with_parent)


@node.command("brokers")
@click.option(
    "--config",
    "configs",
    required=True,
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="TOML file of one broker; give one for each broker of the host.",
)
@_settings_option
def brokers_node(configs: tuple[Path, ...], settings: tuple[str, ...]) -> int:
    """Run several brokers of this host: as a rule, one for each core that they may use.

    They are forked from one process, so that they share the memory of the code. All have the same
    broker.rack, and ids, ports and folders of their own. A broker that fails is started again.
    SIGTERM stops all of them, each after it has handed its leaderships over. They also stop when
    this process ends in any other way.

    \b
    Example:
      quorate node brokers --config broker-11.toml --config broker-12.toml
    """
    if not hasattr(signal, "sigtimedwait"):
        raise click.UsageError("this needs Linux: start each broker with quorate node broker")
    load_broker()
    from quorate.broker.host.host_process import run_brokers

    return run_brokers(configs, key_values(settings, "--set"), _watch_parent)


READY_TIMEOUT_S: Final = 5.0


@node.command("ready")
@click.argument("metrics_listener", metavar="HOST:PORT")
def node_ready(metrics_listener: str) -> int:
    """Ask a node whether it serves, and print its answer; HOST:PORT is its metrics.listener.

    The exit code is 0 if it is ready, and 1 if it is not or does not answer. Containers use it as
    their health check.

    \b
    Example:
      quorate node ready 127.0.0.1:9195
    """
    import urllib.error
    import urllib.request

    try:
        with urllib.request.urlopen(
            f"http://{metrics_listener}/readyz", timeout=READY_TIMEOUT_S
        ) as answer:
            echo(answer.read().decode(errors="replace").strip())
            return 0
    except urllib.error.HTTPError as refused:
        echo(refused.read().decode(errors="replace").strip())
        refused.close()
    except (OSError, ValueError) as error:
        echo(f"no answer from {metrics_listener}: {error}")
    return 1
