"""A voter's snapshots: loaded at start, written by size, sent to slow followers, received (P1, P3,
P11).

The journal is compacted only up to a snapshot that is on disk, and its entries after a snapshot are
never dropped. Files that do not fit together end the process.
"""

import logging
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from quorate.common.files.data_folder import REPLACE
from quorate.metadata_log.image import VoterSet
from quorate.metadata_log.snapshot.builder import InvalidSnapshot
from quorate.quorum.raft.admission import Admission
from quorate.quorum.raft.elections import PreVoteVoter
from quorate.quorum.raft.guards import SafetyViolation
from quorate.quorum.raft.network.poller import DrivenPoller
from quorate.quorum.raft.network.transport import VoterNode, VoterTransport
from quorate.quorum.raft.raft_clock import clock_s
from quorate.quorum.raft.raft_options import RaftOptions
from quorate.quorum.raft.snapshot_store import Received, SnapshotStore
from quorate.quorum.raft.storage.journal import RaftJournal
from quorate.quorum.raft.storage.snapshot_file import (
    SnapshotCorrupt,
    SnapshotPosition,
    naming_errors,
)

log = logging.getLogger(__name__)


class ReplicatedState(Protocol):
    """The state machine. ``apply_run`` is deterministic; an error that it raises ends the process
    (P6).
    """

    def apply_run(self, commands: Sequence[tuple[int, bytes]]) -> Sequence[object]:
        """Apply (index, command) pairs, in order; return the result of each."""

    def snapshot_chunks(self) -> Iterable[bytes]:
        """Return the encoded state of this moment; it is read later, in another thread."""

    def decode(self, chunks: Iterable[bytes]) -> Any:  # noqa: ANN401 - a state of its own kind
        """Return the state that a snapshot encodes. It changes nothing, and is called in another
        thread.
        """

    def install(self, index: int, state: Any) -> None:  # noqa: ANN401 - what ``decode`` returned
        """Replace the state by that of a snapshot of ``index``."""

    @property
    def voter_set(self) -> VoterSet:
        """The voter set, as far as it is applied."""


class CompactingVoter(PreVoteVoter):
    """A voter whose log is compacted, so that it does not grow for ever."""

    def __init__(
        self,
        options: RaftOptions,
        own: VoterNode,
        others: list[VoterNode],
        journal: RaftJournal,
        poller: DrivenPoller,
        transport: VoterTransport,
        snapshots: SnapshotStore,
        machine: ReplicatedState,
        admission: Admission,
    ) -> None:
        self._snapshots = snapshots
        self._machine = machine
        self._snapshot_index = 0
        self._snapshot_begun_s = 0.0
        self._bytes_since_snapshot = 0
        self._waiting_for_pieces: dict[VoterNode, int] = {}
        self.verified_index: int | None = None
        """The index up to which the message being handled proves our log to be the leader's."""
        super().__init__(options, own, others, journal, poller, transport, admission)
        self.use_serializer(snapshots)
        snapshots.on_waiting = self._wait_for_piece
        snapshots.on_adopting = journal.adopts_snapshot

    def load_snapshot(self) -> None:
        """Start from the snapshot in the folder, if there is one.

        Raises:
            SnapshotCorrupt, SafetyViolation: what is on disk does not fit together.
        """
        position = self._snapshots.position()
        first = self.journal.first_index
        if first > (1 if position is None else position.last_index):
            has = "there is no snapshot" if position is None else f"the snapshot ends at {position}"
            raise SafetyViolation(
                f"the journal begins at entry {first} but {has} ({self._snapshots.path}): what "
                f"lies between is lost. {REPLACE}"
            )
        if position is not None:
            self._require_log_of(position)
            self._adopt(Received(position, self._decoded()))

    def _decoded(self) -> Any:  # noqa: ANN401 - what ``ReplicatedState.decode`` returns
        path = self._snapshots.path
        try:
            with naming_errors("read", path):
                return self._machine.decode(self._snapshots.chunks())
        except InvalidSnapshot as error:
            raise SnapshotCorrupt(
                f"snapshot {path}: {error}. If a newer release wrote it, start this voter with "
                f"that release. If it is damaged: {REPLACE}"
            ) from error

    def _require_log_of(self, position: SnapshotPosition) -> None:
        """Refuse a journal that is older than the snapshot: it may have forgotten a vote."""
        index, term = position
        found = self.journal.term_at(index)
        if found != term and not self.journal.may_end_before(index):
            has = (
                f"ends at {self.journal.last_index}" if found is None else f"has term {found} there"
            )
            raise SafetyViolation(
                f"the snapshot {self._snapshots.path} ends with entry {index} of term {term}, but "
                f"the journal {has}: the journal is an old copy, or its disk has lost writes. "
                f"{REPLACE}"
            )

    def _adopt(self, snapshot: Received) -> None:
        """Make the snapshot in the folder our state. Entries after it stay (P1)."""
        index, term = snapshot.position
        self._machine.install(index, snapshot.state)
        if self.journal.term_at(index) != term:
            self.journal.reset_to(index, term)
        self.journal.snapshot_is_adopted()
        self.last_applied = index
        self.commit_index = max(self.commit_index, index)
        self._snapshot_index = index
        self._bytes_since_snapshot = 0

    # -- overridden ------------------------------------------------------------------------------

    def _SyncObj__tryLogCompaction(self) -> None:
        written = self._snapshots.finished()
        if written is not None:
            self._compact(written.last_index)
        received = self._snapshots.received()
        if received is not None:
            self._install(received)
        entries = self.last_applied - self._snapshot_index
        if not self._snapshots.busy and (
            entries >= self.options.snapshot_max_entries
            or self._bytes_since_snapshot >= self.options.snapshot_max_bytes
        ):
            self._write_snapshot()

    def _install(self, received: Received) -> None:
        """Install a complete snapshot from the leader. Whoever leads now has everything in it as
        well.
        """
        position = received.position
        if position.last_index > self.last_applied:
            log.info("installing snapshot %d of the leader", position.last_index)
            self._adopt(received)
        if self.leader is not None and not self.is_leader:
            self.verified_index = position.last_index
            self._SyncObj__sendNextNodeIdx(self.leader, success=True)

    def _write_snapshot(self) -> None:
        term = self.journal.term_at(self.last_applied)
        if term is None:
            raise SafetyViolation(f"applied entry {self.last_applied} is not in the journal")
        self._bytes_since_snapshot = 0
        self._snapshot_begun_s = clock_s()
        position = SnapshotPosition(self.last_applied, term)
        self._snapshots.begin_writing(position, self._machine.snapshot_chunks())

    def _compact(self, snapshot_index: int) -> None:
        self._snapshot_index = max(self._snapshot_index, snapshot_index)
        self.journal.deleteEntriesTo(self._first_retained(snapshot_index))
        log.info(
            "snapshot %d written in %d ms, %d bytes; the journal begins at %d",
            snapshot_index,
            (clock_s() - self._snapshot_begun_s) * 1000,
            self._snapshots.path.stat().st_size,
            self.journal.first_index,
        )

    def _first_retained(self, snapshot_index: int) -> int:
        """Return the position in the journal of the first entry that is kept before the snapshot's
        last one.

        Kept entries spare watchers and slow voters a snapshot, but take memory: both number and
        size are limited.
        """
        position = snapshot_index - self.journal.first_index
        # The library needs at least two entries.
        least = max(0, position - max(1, self.options.retained_entries))
        room = self.options.retained_bytes
        position -= 1
        for command, _, _ in reversed(self.journal[least:position]):
            room -= len(command)
            if room < 0:
                break
            position -= 1
        return position

    def _SyncObj__sendAppendEntries(self) -> None:
        super()._SyncObj__sendAppendEntries()
        for node, index in self._waiting_for_pieces.items():
            self.next_index[node] = index
        self._waiting_for_pieces = {}
        sent, self._snapshots.sent = self._snapshots.sent, {}
        for node, position in sent.items():
            self.next_index[node] = position.last_index + 1

    def _wait_for_piece(self, node: VoterNode) -> None:
        """Send no piece of a snapshot to ``node`` now, for its connection is full.

        The library would ask again and again for as long as a heartbeat's period, and send a
        message each time. It goes on to the next follower once this one seems to lack nothing.
        """
        self._waiting_for_pieces[node] = self.next_index[node]
        self.next_index[node] = self.journal.last_index + 1

    def count_applied_bytes(self, size: int) -> None:
        self._bytes_since_snapshot += size
