"""One voter as a process: ``run`` returns its exit code."""

import asyncio
import gc
import logging
import signal
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final

import grpc
import msgspec
import uvloop

from quorate.common.configuration import LOG_LEVEL, ConfigError
from quorate.common.escaping import escaped_lines, log_to_stderr
from quorate.common.files.data_folder import (
    IDENTITY_FILE,
    REPLACE,
    DataFolderError,
    claimed_data_folder,
)
from quorate.common.files.open_files import allow_many_files
from quorate.common.files.private_files import keep_files_private
from quorate.common.grpc_support.grpc_log import divert_grpc_log
from quorate.common.grpc_support.refusal_log import RefusalLog
from quorate.common.invariants import BrokenInvariant
from quorate.common.metrics.metrics_endpoint import (
    METRICS_LISTENER,
    MetricsEndpoint,
    metrics_listener,
)
from quorate.common.service_manager import notify_ready, notify_stopping
from quorate.common.tls.identity import Security
from quorate.common.tls.renewable import RenewableSecurity
from quorate.common.tls.tls_config import PLAINTEXT, VOTER_SECURITY
from quorate.metadata_log.image import VoterSet
from quorate.metadata_log.snapshot.builder import InvalidSnapshot
from quorate.quorum.operations.first_start import (
    FIRST_VOTERS_FILE,
    read_first_voters,
    write_first_voters,
)
from quorate.quorum.operations.stale_folder import remember_stale, require_not_stale
from quorate.quorum.quorum_config import QuorumConfig, load_quorum_config
from quorate.quorum.raft.admission import Admission
from quorate.quorum.raft.driver import RaftDriver
from quorate.quorum.raft.guards import LibraryMismatch, SafetyViolation, check_library
from quorate.quorum.raft.invariants import InvariantBroken
from quorate.quorum.raft.leaving import LeavesQuorum, RemovedFromQuorum, VoterStale, VoterWiped
from quorate.quorum.raft.network.poller import DrivenPoller
from quorate.quorum.raft.network.transport import VoterNode, VoterTransport
from quorate.quorum.raft.raft_node import RaftNode
from quorate.quorum.raft.snapshot_store import SNAPSHOT_FILE, SnapshotStore
from quorate.quorum.raft.staleness import PATIENCE_TIMEOUTS, CheckedFolder
from quorate.quorum.raft.storage.journal import JournalError
from quorate.quorum.raft.storage.lmdb_journal import JOURNAL_FILE, LmdbJournal
from quorate.quorum.raft.storage.snapshot_file import SnapshotError
from quorate.quorum.voter.quorum_service import Authorization, QuorumService
from quorate.quorum.voter.state_machine import QuorumStateMachine
from quorate.quorum.voter.voter import Voter
from quorate.quorum.voter.voter_readiness import voter_why_unready
from quorate.quorum.voter.voter_status import voter_samples
from quorate.quorum.voter_channels import MAX_CONNECTIONS, SERVER_OPTIONS, Peers, bind_server
from quorate_proto.v1.quorum_pb2_grpc import add_QuorumServicer_to_server

log = logging.getLogger(__name__)

EXIT_FAILED: Final = 1
EXIT_CONFIG: Final = 2
EXIT_REMOVED: Final = 0
_GRACE_S: Final = 0.2
_THREAD_SWITCH_INTERVAL_S: Final = 0.0005
"""A round of the raft thread takes the interpreter lock some ten times while the event loop is busy
with gRPC; at Python's default of 5 ms each could wait longer than the fsync takes."""


class CannotStart(RuntimeError):
    """The voter cannot start; the message is for people."""


_FOR_PEOPLE: Final = (
    LibraryMismatch,
    DataFolderError,
    JournalError,
    SnapshotError,
    InvalidSnapshot,
    SafetyViolation,
    BrokenInvariant,
    CannotStart,
    VoterWiped,
    VoterStale,
    InvariantBroken,
)
"""Errors whose message says what is wrong, with what, and what to do; at the start and later."""


def run(config_path: Path, overrides: Mapping[str, object]) -> int:
    """Run the voter of the configuration file until SIGTERM or SIGINT; return its exit code.

    2 means that the configuration is wrong, 1 that the voter cannot start or could not go on. 0
    means that it was stopped, or removed from the quorum: then there is no reason to restart it.
    """
    keep_files_private()
    try:
        config = load_quorum_config(config_path, overrides)
        security = _certificates(config)
    except ConfigError as error:
        return _complain(error, EXIT_CONFIG)
    try:
        check_library()
        allow_many_files(4 * MAX_CONNECTIONS)
        with claimed_data_folder(
            config.data_dir, "quorum", config.voter_id, config.cluster_id, first_journal
        ) as directory_id:
            require_not_stale(config.data_dir)
            require_journal(config.data_dir)
            return _run_in_folder(config, directory_id, security)
    except RemovedFromQuorum as error:
        return _complain(error, EXIT_REMOVED)
    except _FOR_PEOPLE as error:
        return _complain(error, EXIT_FAILED)


def _certificates(config: QuorumConfig) -> RenewableSecurity | None:
    """Return the certificates, or None for plain text."""
    if config.values[VOTER_SECURITY.protocol] == PLAINTEXT:
        return None

    def load() -> Security:
        security = config.security()
        assert security is not None
        return security

    return RenewableSecurity(load)


def _run_in_folder(
    config: QuorumConfig, directory_id: bytes, security: RenewableSecurity | None
) -> int:
    refusals = RefusalLog("gRPC port")
    divert_grpc_log({config.own.grpc.port: refusals})
    log_to_stderr(config.values[LOG_LEVEL])
    sys.setswitchinterval(_THREAD_SWITCH_INTERVAL_S)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(config, directory_id, security, refusals))


def _complain(error: Exception, code: int) -> int:
    sys.stderr.write(escaped_lines(f"quorate quorum voter: {error}\n"))
    return code


async def _serve(
    config: QuorumConfig,
    directory_id: bytes,
    security: RenewableSecurity | None,
    refusals: RefusalLog,
) -> int:
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
    node = _open_node(config, directory_id, machine, security)
    peers = Peers(voter.members, security)
    server = _bind_server(config, QuorumService(voter, peers, refusals), security, refusals)
    _listen(config, node)
    endpoint = await _show_metrics(config, voter)
    driver = RaftDriver(
        node, lambda done, leadership: voter.on_round(node, done, leadership), on_failed
    )
    # The objects loaded so far stay for good, so the collector need not visit them again and again.
    gc.collect()
    gc.freeze()
    gc.set_threshold(200_000, 20, 100)
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
    notify_ready(f"voter {config.voter_id} listens")
    await stop.wait()
    notify_stopping()
    if endpoint is not None:
        await endpoint.stop()
    await server.stop(_GRACE_S)
    await voter.stop()
    await peers.close()
    node.close()
    log.info("voter %d stopped", config.voter_id)
    for failure in failures:
        if isinstance(failure, (LeavesQuorum, *_FOR_PEOPLE)):
            raise failure
    return EXIT_FAILED if failures else 0


async def _show_metrics(config: QuorumConfig, voter: Voter) -> MetricsEndpoint | None:
    listener = metrics_listener(config.values[METRICS_LISTENER])
    if listener is None:
        return None
    endpoint = MetricsEndpoint(partial(voter_samples, voter), partial(voter_why_unready, voter))
    try:
        await endpoint.start(listener)
    except OSError as error:
        raise CannotStart(
            f"cannot listen on {listener} ({METRICS_LISTENER.name}): {error.strerror}; choose "
            "another port, or stop what uses it"
        ) from error
    return endpoint


def first_journal(folder: Path) -> None:
    """Create the journal, which a voter's folder has before it gets an identity: see
    ``require_journal``.

    Raises:
        CannotStart: the folder was used, and has lost its identity.
    """
    journal = LmdbJournal(folder / JOURNAL_FILE)
    is_fresh = journal.is_fresh()
    journal.close()
    used = [name for name in (SNAPSHOT_FILE, FIRST_VOTERS_FILE) if (folder / name).exists()]
    if used or not is_fresh:
        raise CannotStart(
            f"data folder {folder} was in use ({', '.join(used) or JOURNAL_FILE}), but its "
            f"{IDENTITY_FILE} is missing. {REPLACE}"
        )


def require_journal(folder: Path) -> None:
    """Refuse a folder that was used and has lost its journal: it is as bad as a wiped one."""
    journal = folder / JOURNAL_FILE
    if not journal.exists():
        raise CannotStart(
            f"data folder {folder} was in use, but its {JOURNAL_FILE} is missing. {REPLACE}"
        )


def _open_node(
    config: QuorumConfig,
    directory_id: bytes,
    machine: QuorumStateMachine,
    security: RenewableSecurity | None,
) -> RaftNode:
    nodes = {voter.voter_id: VoterNode(voter.voter_id, voter.raft) for voter in config.voters}
    own = nodes.pop(config.voter_id)
    poller = DrivenPoller()
    journal = LmdbJournal(config.data_dir / JOURNAL_FILE)
    member = msgspec.structs.replace(config.own.as_member(), directory_id=directory_id)
    configured = [voter.as_member() for voter in config.voters]
    admission = Admission(
        member,
        configured,
        journal.is_fresh,
        read_first_voters(config.data_dir),
        partial(write_first_voters, config.data_dir),
        CheckedFolder(
            config.voter_id,
            directory_id,
            journal,
            PATIENCE_TIMEOUTS * config.raft_options.election_timeout_max_s,
            partial(remember_stale, config.data_dir),
        ),
    )
    transport = VoterTransport(
        poller, config.cluster_id, own, list(nodes.values()), admission, security
    )
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
        admission,
    )
    node.recover()
    _warn_of_differences(config, machine.voter_set)
    return node


def _warn_of_differences(config: QuorumConfig, voter_set: VoterSet) -> None:
    """Warn if the configured voters are not the committed ones, which count. The configured set was
    for the first start.
    """
    if not voter_set.version:
        return
    configured = {(voter.voter_id, voter.raft, voter.grpc) for voter in config.voters}
    committed = {(voter.voter_id, voter.raft, voter.grpc) for voter in voter_set.voters}
    if configured != committed:
        log.warning(
            "quorum.voters differs from the committed voter set %d, which rules: %s",
            voter_set.version,
            ",".join(f"{v.voter_id}@{v.raft}/{v.grpc.port}" for v in voter_set.voters),
        )


def _bind_server(
    config: QuorumConfig,
    service: QuorumService,
    security: RenewableSecurity | None,
    refusals: RefusalLog,
) -> grpc.aio.Server:
    guards = [] if security is None else [Authorization(refusals)]
    server = grpc.aio.server(interceptors=guards, options=SERVER_OPTIONS)
    add_QuorumServicer_to_server(service, server)
    try:
        bind_server(server, str(config.own.grpc), security)
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
