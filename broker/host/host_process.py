"""The process of a host's brokers: it checks their configurations, loads their code, forks them."""

import gc
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from quorate.broker.config.node import BROKER_ID
from quorate.broker.host.broker_processes import EXIT_CONFIG, BrokerProcesses
from quorate.broker.host.host_configs import load_configs
from quorate.broker.process import load_what_is_served, run_configured
from quorate.broker.rpc.grpc_listener import read_certificates
from quorate.common.clock import monotonic_ms
from quorate.common.configuration import ConfigError
from quorate.common.escaping import escaped_lines
from quorate.common.files.private_files import keep_files_private
from quorate.common.service_manager import notify_ready


def run_brokers(
    paths: Sequence[Path], overrides: Mapping[str, object], in_broker: Callable[[], None]
) -> int:
    """Run one broker per configuration file, each forked, until all have ended.

    ``in_broker`` is called in each forked process before its broker runs. A broker that starts
    again has the configuration that was read here, and certificates that are looked at again.

    Returns:
        In each forked process, the exit code of its broker. In the process that forked them, that
        of the first one that failed.
    """
    keep_files_private()
    try:
        configs = load_configs(paths, overrides)
        # Read here, so that what that loads and computes is in memory that all brokers share.
        certificates = {path: read_certificates(config) for path, config in configs.items()}
    except ConfigError as error:
        _say(str(error))
        return EXIT_CONFIG
    for config in configs.values():
        load_what_is_served(config)
    files = {f"broker-{config[BROKER_ID]}": path for path, config in configs.items()}
    # A collection in a forked process would write to every object, and so copy all of this memory.
    gc.collect()
    gc.freeze()
    processes = BrokerProcesses(list(files), monotonic_ms, _say, _all_are_up)
    chosen = processes.run()
    if isinstance(chosen, int):
        return chosen
    in_broker()
    path = files[chosen]
    return run_configured(configs[path], certificates[path], processes.tell_parent_that_up)


def _all_are_up() -> None:
    notify_ready("all brokers are registered and serve")


def _say(message: str) -> None:
    sys.stderr.write(escaped_lines(f"brokers: {message}\n"))
    sys.stderr.flush()
