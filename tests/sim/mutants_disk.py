"""Mutants of the journal, of snapshots and of what the service promises (P1, P2, P11, P14, P15)."""

from typing import Any
from unittest.mock import patch

import quorate.quorum.raft.snapshot_store
import quorate.quorum.raft.storage.snapshot_file
from quorate.common.types import MetadataOffset
from quorate.metadata_log.draft_tables import DraftClientResults
from quorate.quorum.raft.compaction import CompactingVoter
from quorate.quorum.raft.member_voter import MemberVoter
from quorate.quorum.raft.snapshot_store import Received, SnapshotStore
from quorate.quorum.raft.storage.journal import JournalWrite, RaftJournal
from quorate.quorum.raft.storage.snapshot_file import SnapshotCorrupt, read_chunks
from quorate.quorum.voter.voter import Voter
from tests.sim.disk import SimulatedDisk
from tests.sim.mutants import Replacement, mutant, nothing

_adopt = CompactingVoter._adopt
_write_snapshot = CompactingVoter._write_snapshot
_received = SnapshotStore.received


@mutant("p1-suffix", "the journal starts over behind every snapshot that is loaded")
def _p1() -> list[Replacement]:
    def adopt(self: CompactingVoter, snapshot: Received) -> None:
        _adopt(self, snapshot)
        self.journal.reset_to(*snapshot.position)

    return [(CompactingVoter, "_adopt", adopt)]


@mutant("p2-atomic", "truncation, compaction and new entries reach the disk one after the other")
def _p2() -> list[Replacement]:
    def write(self: SimulatedDisk, change: JournalWrite) -> None:
        kind = self.kind_of(change)
        self.effect(f"{kind} write")
        self.take_sync_time()
        first = 1 if self.meta is None else self.meta.first
        kept = {index: entry for index, entry in self.entries.items() if index >= change.meta.first}
        if change.meta.first > first:
            self.entries = {}
            self.effect(f"{kind} half compacted")
            self.entries = kept
        self.apply(change._replace(appended=()))
        self.effect(f"{kind} half written")
        self.apply(change._replace(truncate_from=None))
        self.effect(f"{kind} written")

    return [(SimulatedDisk, "write", write)]


@mutant("truncation-kept", "a truncation does not reach the disk")
def _truncation() -> list[Replacement]:
    original = RaftJournal.deleteEntriesFrom

    def delete_from(self: RaftJournal, position: int) -> None:
        original(self, position)
        self._truncate_from = None

    return [(RaftJournal, "deleteEntriesFrom", delete_from)]


@mutant("p11-checksums", "a snapshot from the leader is installed unchecked")
def _p11() -> list[Replacement]:
    def unchecked(path: Any) -> Any:  # noqa: ANN401
        try:
            yield from read_chunks(path)
        except SnapshotCorrupt:
            return

    return [(quorate.quorum.raft.snapshot_store, "read_chunks", unchecked)]


@mutant("compaction-first", "the journal is compacted before the snapshot is durable")
def _compaction() -> list[Replacement]:
    def write_snapshot(self: CompactingVoter) -> None:
        _write_snapshot(self)
        keep_from = self.last_applied - max(1, self.options.retained_entries)
        self.journal.deleteEntriesTo(keep_from - self.journal.first_index)

    return [(CompactingVoter, "_write_snapshot", write_snapshot)]


@mutant("snapshot-fsync", "a snapshot gets its name before its bytes are on disk")
def _snapshot_fsync() -> list[Replacement]:
    return [(quorate.quorum.raft.storage.snapshot_file, "_make_durable", nothing)]


@mutant("snapshot-folder-fsync", "the journal is compacted before the snapshot's name is on disk")
def _folder_fsync() -> list[Replacement]:
    return [(quorate.quorum.raft.storage.snapshot_file, "sync_folder", nothing)]


@mutant("received-fsync", "a received snapshot gets its name before its bytes are on disk")
def _received_fsync() -> list[Replacement]:
    return [(quorate.quorum.raft.snapshot_store, "sync_file", nothing)]


@mutant("older-snapshot-file", "an older snapshot from the leader replaces a newer one on disk")
def _older_file() -> list[Replacement]:
    def received(self: SnapshotStore) -> Received | None:
        with patch.object(self, "position", nothing):
            return _received(self)

    return [(SnapshotStore, "received", received)]


@mutant("older-snapshot-state", "an older snapshot from the leader replaces a newer state")
def _older_state() -> list[Replacement]:
    def install(self: CompactingVoter, received: Received) -> None:
        self._adopt(received)

    return [(CompactingVoter, "_install", install)]


@mutant("p14-barrier", "a leader answers reads without asking anybody")
def _p14() -> list[Replacement]:
    async def barrier(self: Voter) -> MetadataOffset:
        return self.applied_offset

    return [(Voter, "barrier", barrier)]


@mutant("p15-dedupe", "a retry is applied again")
def _p15() -> list[Replacement]:
    return [(DraftClientResults, "get", nothing)]


@mutant("lead-caught-up", "a new leader answers before it has applied what is committed")
def _caught_up() -> list[Replacement]:
    leads = property(lambda self: self.is_leader)
    return [(MemberVoter, "has_applied_its_no_op", leads)]


@mutant("keep-alive-majority", "a leader that no majority follows keeps sessions alive")
def _keep_alive() -> list[Replacement]:
    return [(Voter, "heard_majority_just_now", property(lambda _self: True))]
