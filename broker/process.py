"""The broker process: configuration in, exit code out."""

import asyncio
import gc
import logging
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import uvloop

from broker.allocation import keep_freed_memory
from broker.config.log import LOG_DIR
from broker.config.node import BROKER_ID
from broker.config.spec import load_config
from broker.control.registration import RegistrationRefused
from broker.errors import KafkaError
from broker.grpc_listener import Certificates, read_certificates
from broker.grpc_refusals import GrpcRefusals
from broker.listeners import ListenError
from broker.node import BrokerNode
from broker.surroundings import ProcessSurroundings
from metadata_log.configuration import ConfigError, Configuration
from quorum.config import LOG_LEVEL
from quorum.data_folder import DataFolderError
from quorum.errors import QuorumError
from quorum.peers import allow_many_files

log = logging.getLogger(__name__)

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
EXIT_CONFIG: Final = 2

THREAD_SWITCH_INTERVAL_S: Final = 0.001
"""A commit of the log writer takes the interpreter lock some twenty times; at Python's default of
5 ms a busy event loop halves what is written per second (``bench/log_append.py``)."""

OPEN_FILES: Final = 200_000
"""As in the systemd unit: each connection is one, and shells begin with 1024 for all of them."""

_NAMED_FAILURES: Final = (
    QuorumError,
    DataFolderError,
    ListenError,
    RegistrationRefused,
    KafkaError,
    OSError,
)
"""Faults whose message is all that a person needs; anything else is a bug and shows its trace."""


def run(config_path: Path, overrides: Mapping[str, object]) -> int:
    """Run one broker until SIGTERM or SIGINT; returns the process's exit code.

    ``overrides`` take the place of keys in the file.
    """
    try:
        config = load_config(config_path, overrides)
        certificates = read_certificates(config)
    except ConfigError as error:
        sys.stderr.write(f"broker: {error}\n")
        return EXIT_CONFIG
    refusals = GrpcRefusals()
    refusals.listen_for_handshakes()
    logging.basicConfig(
        level=config[LOG_LEVEL],
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    keep_freed_memory()
    allow_many_files(OPEN_FILES)
    sys.setswitchinterval(THREAD_SWITCH_INTERVAL_S)
    return uvloop.run(_serve(config, certificates, refusals))


async def _serve(config: Configuration, certificates: Certificates, refusals: GrpcRefusals) -> int:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    surroundings = ProcessSurroundings(config, certificates, refusals)
    starting = asyncio.create_task(_start(config, surroundings))
    stop_asked = asyncio.create_task(stopping.wait())
    await asyncio.wait({starting, stop_asked}, return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        return EXIT_OK
    try:
        node = starting.result()
    except _NAMED_FAILURES as error:
        stop_asked.cancel()
        sys.stderr.write(f"broker {config[BROKER_ID]}: {error}\n")
        return EXIT_FAILED
    # What is loaded stays, and a look at all replicas takes long: at Python's default, creating
    # thousands of them stops the event loop for more than that again and again.
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    log.info("broker %d is up", config[BROKER_ID])
    failing = asyncio.create_task(node.log_failed())
    await asyncio.wait({stop_asked, failing}, return_when=asyncio.FIRST_COMPLETED)
    log.info("broker %d stops", config[BROKER_ID])
    await node.stop()
    if not failing.done():
        failing.cancel()
        return EXIT_OK
    stop_asked.cancel()
    sys.stderr.write(
        f"broker {config[BROKER_ID]}: cannot write log directory {config[LOG_DIR]}: see above. "
        "Repair the disk, then start this broker again\n"
    )
    return EXIT_FAILED


async def _start(config: Configuration, surroundings: ProcessSurroundings) -> BrokerNode:
    node = BrokerNode(config, surroundings)
    await node.start()
    return node
