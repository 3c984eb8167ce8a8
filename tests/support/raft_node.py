"""One ``RaftNode`` without a network: messages go in by hand, what it sends is recorded."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from pysyncobj.transport import Transport

from quorate.common.types import Endpoint, VoterId
from quorate.metadata_log.image import VoterSet
from quorate.quorum.raft.admission import Admission
from quorate.quorum.raft.network.poller import DrivenPoller
from quorate.quorum.raft.network.raft_frames import Message
from quorate.quorum.raft.network.transport import VoterNode
from quorate.quorum.raft.raft_clock import clock_s
from quorate.quorum.raft.raft_node import RaftNode
from quorate.quorum.raft.raft_options import RaftOptions
from quorate.quorum.raft.snapshot_store import SnapshotStore
from quorate.quorum.raft.storage.lmdb_journal import LmdbJournal
from tests.support.metadata import quorum_voter

Sent = list[tuple[int, Message]]


class RecordingTransport(Transport):  # type: ignore[misc]  # the library is untyped
    """Pretends that every peer is connected, and keeps what is sent."""

    def __init__(self, own: VoterNode, others: list[VoterNode]) -> None:
        super().__init__(None, own, others)
        self.sent: Sent = []
        self.is_full = False
        """Nothing more of a snapshot fits into the connections for now."""

    def send(self, node: VoterNode, message: Message) -> bool:
        self.sent.append((node.voter_id, dict(message)))
        return True

    def is_connected(self, voter_id: int) -> bool:
        return True

    def can_take_snapshot_piece(self, node: VoterNode) -> bool:
        return not self.is_full

    def tend(self, now: float) -> None:
        """All are connected."""

    def announce(self) -> None:
        """Do nothing, because nobody listens."""

    def receive(self, node: VoterNode, message: Message) -> None:
        self._onMessageReceived(node, message)

    def connect(self, node: VoterNode) -> None:
        self._onNodeConnected(node)

    def disconnect(self, node: VoterNode) -> None:
        self._onNodeDisconnected(node)


class RecordingMachine:
    """A state machine that remembers commands."""

    def __init__(self) -> None:
        self.applied: list[tuple[int, bytes]] = []
        self.installed_at = 0
        self.voter_set = VoterSet()

    def apply_run(self, commands: Sequence[tuple[int, bytes]]) -> list[bytes]:
        self.applied += commands
        return [command for _, command in commands]

    def snapshot_chunks(self) -> Iterable[bytes]:
        return [b"%d:" % index + command for index, command in self.applied]

    def decode(self, chunks: Iterable[bytes]) -> list[tuple[int, bytes]]:
        pairs = (chunk.partition(b":") for chunk in chunks)
        return [(int(index), command) for index, _, command in pairs]

    def install(self, index: int, state: list[tuple[int, bytes]]) -> None:
        self.applied = state
        self.installed_at = index


class Background:
    """Work that a test lets happen; at once, unless it says otherwise."""

    def __init__(self) -> None:
        self.at_once = True
        self._waiting: list[tuple[_Work, Callable[[], None]]] = []

    def __call__(self, work: Callable[[], None]) -> "_Work":
        handle = _Work(self)
        self._waiting.append((handle, work))
        if self.at_once:
            self.run()
        return handle

    def run(self) -> None:
        """Finish everything that waits."""
        while self._waiting:
            self.run_newest()

    def run_newest(self) -> None:
        handle, work = self._waiting.pop()
        work()
        handle.done = True


class _Work:
    def __init__(self, background: Background) -> None:
        self._background = background
        self.done = False

    def is_alive(self) -> bool:
        return not self.done

    def join(self) -> None:
        self._background.run()


class LoneNode:
    """Voter 1 of ``voters``; the others are played by the test."""

    def __init__(self, folder: Path, voters: int = 3, **options: Any) -> None:  # noqa: ANN401
        self.folder = folder
        folder.mkdir(exist_ok=True)
        nodes = [
            VoterNode(VoterId(voter_id), Endpoint("127.0.0.1", 9))
            for voter_id in range(1, voters + 1)
        ]
        self.own, self.others = nodes[0], nodes[1:]
        self.members = [
            msgspec.structs.replace(quorum_voter(node.voter_id), raft=node.raft) for node in nodes
        ]
        self.machine = RecordingMachine()
        self.machine.voter_set = VoterSet(tuple(self.members), version=1)
        self.background = Background()
        self.transport = RecordingTransport(self.own, self.others)
        poller = DrivenPoller()
        self.snapshots = SnapshotStore(
            folder,
            self.transport.can_take_snapshot_piece,
            poller.wake,
            self.machine.decode,
            in_background=self.background,
            give_way=lambda: None,
        )
        self.journal = LmdbJournal(folder / "journal.lmdb")
        self.node = RaftNode(
            RaftOptions(**options),
            self.own,
            self.others,
            self.journal,
            poller,
            self.transport,
            self.snapshots,
            self.machine,
            Admission(self.members[0], self.members, lambda: False),
        )
        self.node.recover()
        for other in self.others:
            self.transport.connect(other)

    def close(self) -> None:
        self.node.close()

    def is_synced(self) -> bool:
        """Whether everything added to the journal is on disk."""
        return not self.journal._dirty

    def peer(self, voter_id: int) -> VoterNode:
        return next(node for node in self.others if node.voter_id == voter_id)

    def receive(self, voter_id: int, message: Message) -> None:
        self.transport.receive(self.peer(voter_id), message)

    def take_sent(self, kind: str | None = None) -> Sent:
        """Return what was sent since the last call; of one type only if ``kind`` is given."""
        sent, self.transport.sent = self.transport.sent, []
        return [(to, message) for to, message in sent if kind in (None, message["type"])]

    def round(self) -> None:
        """One round of the driver, without waiting."""
        self.node.settle()
        self.node.tick()
        self.node.send_new_entries()
        self.node.journal.sync()

    def become_leader(self, votes_of: tuple[int, ...] = (2,)) -> None:
        """Stand, with the votes of these voters."""
        self.node.election_deadline_s = clock_s() - 1
        self.node.tick()
        for voter_id in votes_of:
            self.receive(voter_id, {"type": "response_pre_vote", "term": self.node.term})
        self.node.tick()
        for voter_id in votes_of:
            self.receive(voter_id, {"type": "response_vote", "term": self.node.term})
        assert self.node.is_leader

    def append_from(
        self,
        voter_id: int,
        previous: tuple[int, int],
        entries: list[tuple[bytes, int]],
        **more: Any,  # noqa: ANN401
    ) -> None:
        """An append_entries: ``previous`` = (index, term), ``entries`` = (command, term)."""
        index, term = previous
        self.receive(
            voter_id,
            {
                "type": "append_entries",
                "term": more.pop("term", max([term, *(term for _, term in entries)])),
                "commit_index": more.pop("commit_index", 1),
                "prevLogIdx": index,
                "prevLogTerm": term,
                "entries": [
                    (command, index + number, term)
                    for number, (command, term) in enumerate(entries, 1)
                ],
                **more,
            },
        )

    def log(self) -> list[tuple[bytes, int]]:
        """(command, term) of all entries but the first."""
        return [(command, term) for command, _, term in self.journal[1:]]
