"""Mutants of what notices that a voter's data folder is an old copy, or damaged (P10)."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import quorate.quorum.raft.staleness
import quorate.quorum.raft.storage.journal_content
import quorate.quorum.raft.storage.journal_runs
import tests.sim.journal_damage
from quorate.quorum.raft.staleness import CheckedFolder
from quorate.quorum.raft.storage.journal import JournalStore, RaftEntry, RaftJournal
from tests.sim.mutants import Replacement, mutant, nothing

_journal = RaftJournal.__init__


@mutant("journal-rows", "the checksum of entries in the journal is not looked at")
def _rows() -> list[Replacement]:
    return [(quorate.quorum.raft.storage.journal_runs, "crc32c", lambda *_args: 0)]


@mutant("journal-meta", "the checksum of the journal's meta record is not looked at")
def _meta() -> list[Replacement]:
    return [(quorate.quorum.raft.storage.journal_content, "crc32c", lambda *_args: 0)]


@mutant("journal-gaps", "nobody looks whether a row of the journal is missing")
def _gaps() -> list[Replacement]:
    def all_of(_path: Path, runs: Iterable[list[RaftEntry]], _first: int) -> Iterator[RaftEntry]:
        for run in runs:
            yield from run

    damage = tests.sim.journal_damage
    return [(damage, "joined", all_of), (damage, "check_entries", nothing)]


@mutant("stale-promises", "a voter is not told what it has promised to others")
def _promises() -> list[Replacement]:
    return [(quorate.quorum.raft.staleness, "lacking", lambda *_args: "")]


@mutant("stale-kept", "a restart forgets what others have promised")
def _kept() -> list[Replacement]:
    def init(self: RaftJournal, store: JournalStore) -> None:
        _journal(self, store)
        self._meta = self._meta._replace(promises={})

    return [(RaftJournal, "__init__", init)]


@mutant("stale-patience", "a voter that was started takes part before it has heard of the others")
def _patience() -> list[Replacement]:
    always = property(lambda _self: True, nothing)
    return [(CheckedFolder, "is_vouched", always)]
