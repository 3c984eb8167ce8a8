"""The process of a host's brokers: it checks their configurations, loads their code, forks them."""

import gc
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from quorate.broker.config.node import BROKER_ID
from quorate.broker.host.broker_processes import EXIT_CONFIG, BrokerProcesses
from quorate.broker.host.host_configs import load_configs
from quorate.broker.rpc.grpc_listener import read_certificates
from quorate.common.clock import monotonic_ms
from quorate.common.configuration import ConfigError
from quorate.common.escaping import escaped_lines


def fork_brokers(paths: Sequence[Path], overrides: Mapping[str, object]) -> Path | int:
    """Fork one broker per configuration file. The code of a broker is to be loaded before.

    Returns:
        In each forked process, the file of the broker that it is to run. In the process that forked
        them, the exit code once all have ended.
    """
    try:
        configs = load_configs(paths, overrides)
        for config in configs.values():
            # A broker reads them again. What this loads and computes is in memory that all share.
            read_certificates(config)
    except ConfigError as error:
        _say(str(error))
        return EXIT_CONFIG
    files = {f"broker-{config[BROKER_ID]}": path for path, config in configs.items()}
    # A collection in a forked process would write to every object, and so copy all of this memory.
    gc.collect()
    gc.freeze()
    chosen = BrokerProcesses(list(files), monotonic_ms, _say).run()
    return chosen if isinstance(chosen, int) else files[chosen]


def _say(message: str) -> None:
    sys.stderr.write(escaped_lines(f"brokers: {message}\n"))
    sys.stderr.flush()
