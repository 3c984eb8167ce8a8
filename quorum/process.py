"""One voter as a process: ``run`` returns its exit code."""

import asyncio
import gc
import logging
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import grpc
import uvloop

from metadata_log.configuration import ConfigError
from metadata_log.snapshot import InvalidSnapshot
from quorate_proto.v1.quorum_pb2_grpc import add_QuorumServicer_to_server
from quorum.config import LOG_LEVEL, QuorumConfig, load_quorum_config
from quorum.data_folder import DataFolderError, claim_data_folder, release_data_folder
from quorum.peers import SERVER_OPTIONS, Peers
from quorum.raft.driver import RaftDriver
from quorum.raft.guards import LibraryMismatch, SafetyViolation, check_library
from quorum.raft.journal import JournalError
from quorum.raft.lmdb_journal import JOURNAL_FILE, LmdbJournal
from quorum.raft.node import RaftNode
from quorum.raft.poller import DrivenPoller
from quorum.raft.snapshot_file import SnapshotCorrupt
from quorum.raft.snapshots import SnapshotStore
from quorum.raft.transport import VoterNode, VoterTransport
from quorum.service import QuorumService
from quorum.state_machine import QuorumStateMachine
from quorum.voter import Voter

log = logging.getLogger(__name__)

EXIT_FAILED: Final = 1
EXIT_CONFIG: Final = 2
_GRACE_S: Final = 0.2


class CannotStart(RuntimeError):
    """The voter cannot start; the message is for people."""


def run(config_path: Path, overrides: Mapping[str, object]) -> int:
    """Run the voter of the configuration file until SIGTERM or SIGINT; its exit code.

    2: the configuration is wrong. 1: it cannot start, or could not go on. 0: stopped.
    """
    try:
        config = load_quorum_config(config_path, overrides)
    except ConfigError as error:
        return _complain(error, EXIT_CONFIG)
    logging.basicConfig(
        level=config.values[LOG_LEVEL],
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    try:
        check_library()
        claim_data_folder(config.data_dir, "quorum", config.voter_id, config.cluster_id)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_serve(config))
    except (
        LibraryMismatch,
        DataFolderError,
        JournalError,
        SnapshotCorrupt,
        InvalidSnapshot,
        SafetyViolation,
        CannotStart,
    ) as error:
        return _complain(error, EXIT_FAILED)
    finally:
        release_data_folder(config.data_dir)


def _complain(error: Exception, code: int) -> int:
    sys.stderr.write(f"quorate quorum voter: {error}\n")
    return code


async def _serve(config: QuorumConfig) -> int:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    failures: list[BaseException] = []

    def on_failed(error: BaseException) -> None:
        failures.append(error)
        loop.call_soon_threadsafe(stop.set)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    machine = QuorumStateMachine()
    voter = Voter(config, machine)
    node = _open_node(config, machine)
    peers = Peers(config.voters)
    server = _bind_server(config, voter, peers)
    _listen(config, node)
    driver = RaftDriver(
        node, lambda done, leadership: voter.on_round(node, done, leadership), on_failed
    )
    # What is loaded stays: the collector need not look at it again and again.
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    voter.start(driver)
    await server.start()
    log.info(
        "voter %d of %d ready: raft %s, gRPC %s, log from %d to %d",
        config.voter_id,
        len(config.voters),
        config.own.raft,
        config.own.grpc,
        node.journal.first_index,
        node.journal.last_index,
    )
    await stop.wait()
    await server.stop(_GRACE_S)
    await voter.stop()
    await peers.close()
    node.close()
    log.info("voter %d stopped", config.voter_id)
    return EXIT_FAILED if failures else 0


def _open_node(config: QuorumConfig, machine: QuorumStateMachine) -> RaftNode:
    nodes = {voter.voter_id: VoterNode(voter.voter_id, voter.raft) for voter in config.voters}
    own = nodes.pop(config.voter_id)
    poller = DrivenPoller()
    journal = LmdbJournal(config.data_dir / JOURNAL_FILE)
    transport = VoterTransport(poller, config.cluster_id, own, list(nodes.values()))
    snapshots = SnapshotStore(
        config.data_dir, transport.can_take_snapshot_piece, poller.wake, machine.decode
    )
    node = RaftNode(
        config.raft_options,
        own,
        list(nodes.values()),
        journal,
        poller,
        transport,
        snapshots,
        machine,
    )
    node.recover()
    return node


def _bind_server(config: QuorumConfig, voter: Voter, peers: Peers) -> grpc.aio.Server:
    server = grpc.aio.server(options=SERVER_OPTIONS)
    add_QuorumServicer_to_server(QuorumService(voter, peers), server)
    try:
        server.add_insecure_port(str(config.own.grpc))
    except RuntimeError as error:
        raise CannotStart(
            f"cannot listen on {config.own.grpc} (gRPC): the port is taken, or the address is not "
            "this machine's. Correct quorum.voters, or stop the other process"
        ) from error
    return server


def _listen(config: QuorumConfig, node: RaftNode) -> None:
    try:
        node.transport.listen()
    except OSError as error:
        raise CannotStart(
            f"cannot listen on {config.own.raft} (raft): {error.strerror}. "
            "Correct quorum.voters, or stop the other process"
        ) from error


if __name__ == "__main__":
    sys.exit(run(Path(sys.argv[1]), {}))
