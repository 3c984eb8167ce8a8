"""The broker process: reads the configuration, runs a broker, returns an exit code."""

import asyncio
import gc
import importlib
import logging
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import uvloop

from quorate.broker.assembly.kafka_listeners import ListenError
from quorate.broker.assembly.shared_parts import SharedParts
from quorate.broker.broker_server import BrokerServer
from quorate.broker.common.errors import KafkaError
from quorate.broker.config.http_listeners import CONSOLE_LISTENER, HTTP_LISTENERS, REGISTRY_LISTENER
from quorate.broker.config.node import BROKER_ID, SCHEDULING_POLICY
from quorate.broker.control.broker_registrar import RegistrationRefused
from quorate.broker.environment import ProcessEnvironment
from quorate.broker.rpc.grpc_listener import Certificates, GrpcRefusals, read_certificates
from quorate.broker.security.config_file import load_config
from quorate.common.allocation import ask_the_kernel_for_tables, keep_freed_memory
from quorate.common.configuration import LOG_LEVEL, ConfigError, ConfigKey, Configuration
from quorate.common.escaping import escaped_lines, log_to_stderr
from quorate.common.files.data_folder import DataFolderError
from quorate.common.files.open_files import allow_many_files
from quorate.common.files.private_files import keep_files_private
from quorate.common.invariants import BrokenInvariant
from quorate.common.scheduling import SchedulingPolicy, schedule_as
from quorate.common.service_manager import notify_ready, notify_stopping
from quorate.quorum.quorum_errors import QuorumError

log = logging.getLogger(__name__)

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
EXIT_CONFIG: Final = 2

THREAD_SWITCH_INTERVAL_S: Final = 0.001
"""A commit of the log writer takes the interpreter lock some twenty times; at Python's default of
5 ms a busy event loop halves what is written per second (``bench/log_append.py``)."""

OPEN_FILES: Final = 200_000
"""The limit of open files, as in the systemd unit: each connection is one, and shells begin with
1024."""

_ROUTES: Final[Mapping[ConfigKey[str], str]] = {
    REGISTRY_LISTENER: "quorate.broker.registry.registry_routes",
    CONSOLE_LISTENER: "quorate.broker.console.routes",
}
"""The module of what each HTTP listener serves."""

_NAMED_FAILURES: Final = (
    QuorumError,
    DataFolderError,
    ListenError,
    RegistrationRefused,
    KafkaError,
    BrokenInvariant,
    OSError,
)
"""Errors whose message is all that a person needs; any other error is a bug: its trace is shown."""


def run(config_path: Path, overrides: Mapping[str, object]) -> int:
    """Run one broker until SIGTERM or SIGINT; return the exit code of the process.

    ``overrides`` replace keys of the file.
    """
    keep_files_private()
    try:
        config = load_config(config_path, overrides)
        certificates = read_certificates(config)
    except ConfigError as error:
        sys.stderr.write(escaped_lines(f"broker: {error}\n"))
        return EXIT_CONFIG
    return run_configured(config, certificates, lambda: _tell_service_manager(config))


def run_configured(
    config: Configuration, certificates: Certificates, on_up: Callable[[], None]
) -> int:
    """Run one broker as ``run`` does, with a configuration and certificates that were read before.

    ``on_up`` is called once, when the broker serves. The caller has called ``keep_files_private``.
    """
    refusals = GrpcRefusals()
    refusals.listen_for_handshakes()
    log_to_stderr(config[LOG_LEVEL])
    _schedule(config)
    ask_the_kernel_for_tables()
    allow_many_files(OPEN_FILES)
    sys.setswitchinterval(THREAD_SWITCH_INTERVAL_S)
    load_what_is_served(config)
    return uvloop.run(_serve(config, certificates, refusals, on_up))


def _schedule(config: Configuration) -> None:
    policy = SchedulingPolicy(config[SCHEDULING_POLICY])
    try:
        schedule_as(policy)
    except OSError as error:
        log.info("scheduling.policy=%s is not allowed here: %s", policy.value, error)


def load_what_is_served(config: Configuration) -> None:
    """Load the code of the HTTP listeners that are configured. It takes a second on a busy machine,
    for which the event loop would stand still later."""
    load_http_listeners([key for key in HTTP_LISTENERS if config[key]])


def load_http_listeners(keys: Sequence[ConfigKey[str]] = HTTP_LISTENERS) -> None:
    """Load the code that HTTP listeners of these keys need, which a broker without any does not
    load."""
    for key in keys:
        importlib.import_module("quorate.broker.assembly.http_listeners")
        importlib.import_module(_ROUTES[key])


def _tell_service_manager(config: Configuration) -> None:
    notify_ready(f"broker {config[BROKER_ID]} is registered and serves")


async def _serve(
    config: Configuration,
    certificates: Certificates,
    refusals: GrpcRefusals,
    on_up: Callable[[], None],
) -> int:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    shared = SharedParts.of(config, ProcessEnvironment(config, certificates, refusals))
    starting = asyncio.create_task(BrokerServer.start(shared))
    stop_asked = asyncio.create_task(stopping.wait())
    await asyncio.wait({starting, stop_asked}, return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        return EXIT_OK
    try:
        broker = starting.result()
    except _NAMED_FAILURES as error:
        stop_asked.cancel()
        sys.stderr.write(escaped_lines(f"broker {config[BROKER_ID]}: {error}\n"))
        return EXIT_FAILED
    keep_freed_memory()
    # What is loaded stays, and a look at all replicas takes long: at Python's default, creating
    # thousands of them stops the event loop for more than that again and again. A look at the
    # youngest objects stops it too, by a millisecond for a few thousand, so there are not more.
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 100, 100)
    log.info("broker %d is up", config[BROKER_ID])
    on_up()
    failing = asyncio.create_task(broker.failed())
    await asyncio.wait({stop_asked, failing}, return_when=asyncio.FIRST_COMPLETED)
    log.info("broker %d stops", config[BROKER_ID])
    notify_stopping()
    await broker.stop()
    if not failing.done():
        failing.cancel()
        return EXIT_OK
    stop_asked.cancel()
    sys.stderr.write(escaped_lines(f"broker {config[BROKER_ID]}: {failing.result()}\n"))
    return EXIT_FAILED
