"""One voter of the stock library and one of ours, behind the same verbs: what P1-P18 are shown on.

A property that the quorum needs is written once, against ``Side``, and marked with ``fault``. It
holds on ours; on the stock library the same test is a strict expected failure, so that a release
that repairs a fault is noticed. Both sides are voter 1, driven by hand, without sockets or threads;
the others are played by the test. Time is ``Clock``, for both.
"""

import contextlib
import pickle
import select
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pysyncobj.syncobj
import pytest
from pysyncobj import SyncObj, SyncObjConf, replicated

import quorate.quorum.raft.library
import quorate.quorum.raft.raft_clock
from quorate.common.types import Endpoint, VoterId
from quorate.quorum.raft.driver import (
    ProposalOutcome,
    ProposalRun,
    RaftDriver,
    RaftLeadership,
    Settled,
)
from quorate.quorum.raft.network.raft_frames import Message
from quorate.quorum.raft.network.transport import VoterNode
from tests.support.raft_node import LoneNode, RecordingTransport, Sent

REGULAR: Final = b"\x00"
Callback = Callable[[Any, int], None]
Named = tuple[bytes, int]
"""(name, term) of an entry; the name of a no-op is empty."""


class Clock:
    """The clock of both sides; it passes only when told to."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s

    def advance(self, seconds: float) -> None:
        self.now_s += seconds


@contextlib.contextmanager
def stopped_clock() -> Iterator[Clock]:
    """A ``Clock`` in the place of the library's and of ours."""
    clock = Clock()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pysyncobj.syncobj, "monotonicTime", clock)
        patch.setattr(quorate.quorum.raft.raft_clock, "monotonic", clock)
        yield clock


class Side(ABC):
    """Voter 1 of three, or of ``voters``."""

    transport: RecordingTransport
    on_apply: Callable[[bytes], object]
    """A function that is called with every name that is applied; what it raises, apply raises."""

    @abstractmethod
    def __init__(self, folder: Path, clock: Clock, voters: int = 3) -> None: ...

    # -- what the others do ----------------------------------------------------------------------

    @abstractmethod
    def peer(self, voter_id: int) -> VoterNode: ...

    def receive(self, voter_id: int, message: Message) -> None:
        self.transport.receive(self.peer(voter_id), message)

    def append_from(
        self,
        voter_id: int,
        previous: tuple[int, int],
        entries: list[Named],
        commit_index: int = 1,
        term: int | None = None,
    ) -> None:
        """An append_entries of a leader; ``previous`` = (index, term)."""
        first = previous[0] + 1
        self.receive(
            voter_id,
            {
                "type": "append_entries",
                "term": max(previous[1], *(t for _, t in entries), 0) if term is None else term,
                "commit_index": commit_index,
                "prevLogIdx": previous[0],
                "prevLogTerm": previous[1],
                "entries": [
                    (self.command(name), index, entry_term)
                    for index, (name, entry_term) in enumerate(entries, first)
                ],
            },
        )

    def acknowledge(self, voter_id: int, index: int, term: int) -> None:
        """A follower has everything up to ``index``; it said so in ``term``."""
        answer = {"type": "next_node_idx", "term": term, "next_node_idx": index + 1}
        self.receive(voter_id, {**answer, "reset": False, "success": True})

    def take_sent(self, kind: str | None = None) -> Sent:
        sent, self.transport.sent = self.transport.sent, []
        return [(to, message) for to, message in sent if kind in (None, message["type"])]

    # -- what it does ----------------------------------------------------------------------------

    @abstractmethod
    def command(self, name: bytes) -> bytes:
        """An entry that does ``name``."""

    @abstractmethod
    def tick(self) -> None:
        """One round. What goes wrong is raised."""

    @abstractmethod
    def drive(self, rounds: int) -> None:
        """Rounds as its own driver runs them, with what that does about errors."""

    @abstractmethod
    def answer(self) -> None:
        """Send the answers to what was received, when they may be sent."""

    @abstractmethod
    def propose(self, name: bytes, callback: Callback) -> None: ...

    @abstractmethod
    def is_woken(self) -> bool:
        """Whether a driver that waits for something to do would go on."""

    @abstractmethod
    def become_leader(self) -> None:
        """Stand, with voter 2's votes."""

    @abstractmethod
    def arrives_in_a_socket(self, what: Callable[[], None]) -> None:
        """``what`` happens as soon as the sockets are read."""

    @abstractmethod
    def restarted(self, folder: Path, *, newer: bool = False) -> "Side":
        """Start another process on the data in ``folder``; ``newer``: of a version with more
        methods.

        Raises:
            RuntimeError: it refuses to start.
        """

    @abstractmethod
    def close(self) -> None: ...

    def crash(self, into: Path, *, newer: bool = False) -> "Side":
        """Copy the data to ``into`` as a kill at this moment leaves it, and start a process on
        it."""
        return self.restarted(self.crashed(into), newer=newer)

    def crashed(self, into: Path) -> Path:
        shutil.copytree(self.folder, into)
        return into

    # -- where it stands -------------------------------------------------------------------------

    folder: Path
    applied: list[bytes]
    """Names, in the order in which they were applied."""
    voter: SyncObj
    """The library's object: bare, or under our guards."""

    @abstractmethod
    def log(self) -> list[Named]:
        """All entries but the first."""

    @abstractmethod
    def is_durable(self) -> bool:
        """Whether everything written so far was handed to the disk (fsync, msync)."""

    @property
    def term(self) -> int:
        return int(self.voter.raftCurrentTerm)

    @property
    def leads(self) -> bool:
        return bool(self.voter._isLeader())

    @property
    def commit_index(self) -> int:
        return int(self.voter.raftCommitIndex)


# --- ours ---------------------------------------------------------------------------------------

REASONS: Final[dict[ProposalOutcome, int]] = {
    ProposalOutcome.COMMITTED: pysyncobj.FAIL_REASON.SUCCESS,
    ProposalOutcome.NOT_LEADER: pysyncobj.FAIL_REASON.NOT_LEADER,
    ProposalOutcome.UNKNOWN: pysyncobj.FAIL_REASON.UNKNOWN_OUTCOME,
}
"""Our outcomes as the library has them."""


class Caller:
    """The caller that is told the outcome of a proposal."""

    def __init__(self, callback: Callback) -> None:
        self._callback = callback

    def completed(self, settled: Settled) -> None:
        self._callback(settled.results[0], REASONS[settled.outcome])


class OurSide(Side):
    """A ``RaftNode`` over its LMDB journal."""

    def __init__(self, folder: Path, clock: Clock, voters: int = 3) -> None:
        self.folder = folder
        self._clock = clock
        self._voters = voters
        self.on_apply = lambda _name: None
        self.lone = LoneNode(folder, voters)
        self.voter = self.lone.node
        self.transport = self.lone.transport
        self._apply = self.lone.machine.apply_run
        self.lone.machine.apply_run = self._observed_apply  # type: ignore[method-assign]
        self._driver = RaftDriver(self.lone.node, self._tell, lambda _error: None)
        self._stopped = False

    @property
    def applied(self) -> list[bytes]:  # type: ignore[override]
        return [command for _, command in self.lone.machine.applied]

    def _observed_apply(self, commands: Sequence[tuple[int, bytes]]) -> list[bytes]:
        for _, command in commands:
            self.on_apply(command)
        return self._apply(commands)

    def _tell(self, completed: list[Settled], leadership: RaftLeadership) -> None:
        for settled in completed:
            settled.run.owner.completed(settled)

    def peer(self, voter_id: int) -> VoterNode:
        return self.lone.peer(voter_id)

    def command(self, name: bytes) -> bytes:
        return REGULAR + name

    def tick(self) -> None:
        self.lone.node.settle()
        self._driver.decide()

    def drive(self, rounds: int) -> None:
        """The first error ends the voter: ``RaftDriver`` tells its process, which exits."""
        for _ in range(rounds):
            if self._stopped:
                return
            try:
                self.tick()
            except Exception:  # noqa: BLE001 - as the driver's thread
                self._stopped = True

    def answer(self) -> None:
        self.lone.node.settle()

    def propose(self, name: bytes, callback: Callback) -> None:
        self._driver.submit(ProposalRun([name], Caller(callback)))

    def is_woken(self) -> bool:
        return _is_readable([self.lone.node.poller._epoll.fileno()])

    def become_leader(self) -> None:
        self.lone.become_leader()

    def arrives_in_a_socket(self, what: Callable[[], None]) -> None:
        poller = self.lone.node.poller
        wait = poller.wait

        def read(timeout_s: float) -> None:
            poller.wait = wait  # type: ignore[method-assign]
            what()

        poller.wait = read  # type: ignore[method-assign]

    def restarted(self, folder: Path, *, newer: bool = False) -> "OurSide":
        return OurSide(folder, self._clock, self._voters)

    def close(self) -> None:
        self.lone.close()

    def log(self) -> list[Named]:
        return [(command[1:], term) for command, _, term in self.lone.journal[1:]]

    def is_durable(self) -> bool:
        return self.lone.is_synced()


# --- stock --------------------------------------------------------------------------------------


class _StockVoter(SyncObj):  # type: ignore[misc]  # the library is untyped
    """A voter as the library's documentation shows: a class whose replicated methods change its
    attributes."""

    def __init__(self, side: "StockSide", *args: Any, **options: Any) -> None:  # noqa: ANN401
        self.side = side  # Before the constructor's end: not part of the dump.
        super().__init__(*args, **options)
        self.names: list[bytes] = []

    @replicated  # type: ignore[untyped-decorator]
    def write(self, name: bytes) -> bytes:
        self.side.on_apply(name)
        self.names.append(name)
        return name


class _NewerStockVoter(_StockVoter):
    """The next release of the same application: it can also erase."""

    @replicated  # type: ignore[untyped-decorator]
    def erase(self, name: bytes) -> None:
        if name in self.names:
            self.names.remove(name)


class StockSide(Side):
    """PySyncObj 0.3.17 as it comes: its journal and dump in ``folder``, its own serializer."""

    def __init__(
        self,
        folder: Path,
        clock: Clock,
        voters: int = 3,
        kind: type[_StockVoter] = _StockVoter,
    ) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self._clock = clock
        self._voters = voters
        self.on_apply = lambda _name: None
        nodes = [
            VoterNode(VoterId(voter_id), Endpoint("127.0.0.1", 9))
            for voter_id in range(1, voters + 1)
        ]
        self._others = nodes[1:]
        self.transport = RecordingTransport(nodes[0], self._others)
        conf = SyncObjConf(
            autoTick=False,
            journalFile=str(folder / "journal"),
            fullDumpFile=str(folder / "dump"),
            useFork=False,
        )
        self.voter = kind(self, nodes[0], self._others, conf=conf, transport=self.transport)
        self._watch_disk()
        for other in self._others:
            self.transport.connect(other)
        self.tick()  # It loads its dump in the first.

    def _watch_disk(self) -> None:
        """Its journal is durable once msync or fsync followed the last write."""
        self._dirty = False
        journal = self.voter._SyncObj__raftLog
        file = journal._FileJournal__journalFile
        meta = journal._FileJournal__metaStorer
        write, flush, store = file.write, file.flush, meta.storeMeta

        def written(*arguments: object) -> None:
            self._dirty = True
            write(*arguments)

        def stored(*arguments: object) -> None:
            self._dirty = True
            store(*arguments)

        def flushed() -> None:
            flush()
            self._dirty = False

        file.write, file.flush, meta.storeMeta = written, flushed, stored

    @property
    def applied(self) -> list[bytes]:  # type: ignore[override]
        return list(self.voter.names)

    def peer(self, voter_id: int) -> VoterNode:
        return next(node for node in self._others if node.voter_id == voter_id)

    def command(self, name: bytes) -> bytes:
        """Return the command that its ``replicated`` decorator would propose."""
        return REGULAR + pickle.dumps((self.voter._methodToID["write_v0"], (name,)), 2)

    def tick(self) -> None:
        self.voter.doTick()

    def drive(self, rounds: int) -> None:
        """Its tick thread logs what a tick raises, waits a little and goes on."""
        for _ in range(rounds):
            with contextlib.suppress(Exception):
                self.voter.doTick()

    def answer(self) -> None:
        """They are sent at once."""

    def propose(self, name: bytes, callback: Callback) -> None:
        self.voter.write(name, callback=callback)

    def is_woken(self) -> bool:
        return _is_readable(list(self.voter._poller._PollPoller__descrToCallbacks))

    def become_leader(self) -> None:
        self._clock.advance(2)
        self.tick()
        self.receive(2, {"type": "response_vote", "term": self.term})
        if not self.leads:
            raise RuntimeError("the stock voter was not elected")

    def arrives_in_a_socket(self, what: Callable[[], None]) -> None:
        poller = self.voter._poller
        poll = poller.poll

        def read(timeout_s: float) -> None:
            poller.poll = poll
            what()

        poller.poll = read

    def restarted(self, folder: Path, *, newer: bool = False) -> "StockSide":
        kind = _NewerStockVoter if newer else _StockVoter
        return StockSide(folder, self._clock, self._voters, kind)

    def close(self) -> None:
        self.voter.destroy()

    def log(self) -> list[Named]:
        def name(command: bytes) -> bytes:
            return pickle.loads(command[1:])[1][0] if command[:1] == REGULAR else b""

        return [(name(command), term) for command, _, term in self.voter._SyncObj__raftLog[1:]]

    def is_durable(self) -> bool:
        return not self._dirty


def _is_readable(descriptors: list[int]) -> bool:
    return bool(descriptors and select.select(descriptors, [], [], 0)[0])


# --- how a test is written ----------------------------------------------------------------------


def fault(number: str, effect: str) -> pytest.MarkDecorator:
    """The test takes ``start``; on the stock library it must fail by an assertion of its own."""
    fails = pytest.mark.xfail(strict=True, raises=AssertionError, reason=f"{number}: {effect}")
    return pytest.mark.parametrize(
        "side",
        [pytest.param(OurSide, id="ours"), pytest.param(StockSide, id="stock", marks=fails)],
    )
