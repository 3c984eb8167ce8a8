"""One incarnation of a voter's process: the product's classes, put together for the simulation."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec

from quorate.common.grpc_support.refusal_log import RefusalLog
from quorate.common.types import ID_BYTES, SessionId
from quorate.metadata_log.image import Image
from quorate.metadata_log.records import TransactionResult
from quorate.quorum.quorum_config import QuorumConfig
from quorate.quorum.raft.admission import Admission
from quorate.quorum.raft.driver import RaftDriver, RaftLeadership, Settled
from quorate.quorum.raft.network.poller import DrivenPoller
from quorate.quorum.raft.network.raft_frames import Message
from quorate.quorum.raft.network.transport import VoterNode
from quorate.quorum.raft.raft_node import RaftNode
from quorate.quorum.raft.raft_options import RaftOptions
from quorate.quorum.raft.snapshot_store import SnapshotStore
from quorate.quorum.raft.staleness import PATIENCE_TIMEOUTS, CheckedFolder
from quorate.quorum.raft.storage.journal import RaftJournal
from quorate.quorum.voter.quorum_service import QuorumService
from quorate.quorum.voter.state_machine import QuorumStateMachine
from quorate.quorum.voter.voter import Voter
from tests.sim.disk import SimulatedPath
from tests.sim.loop import SimulatedLoop
from tests.sim.transport import SimulatedPoller, SimulatedTransport

if TYPE_CHECKING:
    from tests.sim.host import Host


class HostObserver:
    """The events of a host that the checkers want to hear of. Each method does nothing here."""

    def booted(self, host: "Host") -> None: ...
    def applied(self, host: "Host", index: int, command: bytes, result: object) -> None: ...
    def installed(self, host: "Host", index: int, image: Image) -> None: ...
    def sent(self, host: "Host", to: int, message: Message) -> None: ...
    def receives(self, host: "Host", peer: int, message: Message) -> None:
        """Called before the product has seen the message."""

    def received(self, host: "Host", peer: int, message: Message) -> None:
        """Called after the product has dealt with the message."""

    def connected(self, host: "Host", peer: int) -> None: ...
    def disconnected(self, host: "Host", peer: int) -> None:
        """The connection to a peer was closed, and its process has noticed."""

    def round_ended(self, host: "Host") -> None: ...


class WatchedMachine(QuorumStateMachine):
    """Tells what it applies."""

    def __init__(self, host: "Host", observer: HostObserver) -> None:
        super().__init__()
        self._host = host
        self._observer = observer

    def apply_run(self, commands: Sequence[tuple[int, bytes]]) -> list[TransactionResult | None]:
        results = super().apply_run(commands)
        for (index, command), result in zip(commands, results, strict=True):
            self._observer.applied(self._host, index, command, result)
        return results

    def install(self, index: int, state: Image) -> None:
        super().install(index, state)
        self._observer.installed(self._host, index, state)


class HandDriver(RaftDriver):
    """A driver without a thread: the simulation calls its rounds."""

    def start(self) -> None:
        """The host runs the rounds."""

    @property
    def has_work(self) -> bool:
        return bool(self._queue or self._calls)


class SimulatedVoter(Voter):
    """Takes its randomness from the simulation."""

    random_bytes: Callable[[int], bytes]

    def new_session_id(self) -> SessionId:
        return SessionId(self.random_bytes(ID_BYTES))


class BackgroundWork:
    """Background work of a process: an event some time later, or when somebody joins it."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work: Callable[[], None] | None = work

    def is_alive(self) -> bool:
        return self._work is not None

    def join(self) -> None:
        if self._work is not None:
            work, self._work = self._work, None
            work()


class Process:
    """One incarnation."""

    def __init__(self, host: "Host", options: RaftOptions, config: QuorumConfig) -> None:
        self.host = host
        nodes = {voter.voter_id: VoterNode(voter.voter_id, voter.raft) for voter in config.voters}
        own = nodes.pop(config.voter_id)
        others = list(nodes.values())
        poller = SimulatedPoller(host, partial(host.wake_raft, self))
        self.journal = RaftJournal(host.disk)
        member = msgspec.structs.replace(config.own.as_member(), directory_id=host.directory_id)
        configured = [voter.as_member() for voter in config.voters]
        admission = Admission(
            member,
            configured,
            self.journal.is_fresh,
            host.first_voters,
            host.remember_first_voters,
            CheckedFolder(
                config.voter_id,
                host.directory_id,
                self.journal,
                PATIENCE_TIMEOUTS * options.election_timeout_max_s,
                host.remember_stale,
            ),
        )
        self.transport = SimulatedTransport(host, poller, own, others, admission)
        poller.take = self.transport.take
        self.machine = WatchedMachine(host, host.observer)
        self.loop = SimulatedLoop(host.clock_s, partial(host.wake_loop, self))
        snapshots = SnapshotStore(
            cast(Path, SimulatedPath(host.disk)),
            self.transport.can_take_snapshot_piece,
            poller.wake,
            self.machine.decode,
            partial(host.in_background, self),
            give_way=lambda: None,
        )
        self.node = RaftNode(
            options,
            own,
            others,
            self.journal,
            cast(DrivenPoller, poller),
            self.transport,
            snapshots,
            self.machine,
            admission,
        )
        self.node.conf.appendEntriesBatchSizeBytes = host.batch_bytes
        self.node.recover()
        self.transport.on_sent = partial(host.observer.sent, host)
        with self.loop.running():
            self.voter = SimulatedVoter(config, self.machine)
            self.voter.random_bytes = host.world.random.randbytes
            self.driver = HandDriver(self.node, self._on_round, lambda _error: None)
            self.voter.start(self.driver)
        self.service = QuorumService(self.voter, cast(Any, host.peers), RefusalLog("gRPC port"))

    def _on_round(self, completed: list[Settled], leadership: RaftLeadership) -> None:
        self.voter.on_round(self.node, completed, leadership)
