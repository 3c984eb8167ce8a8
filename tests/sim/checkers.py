"""Checks what must hold at every step, without any of the product's code but ``apply``.

The *record* is the one log that is committed: an entry is in it from the moment that any voter
takes it for committed, and it never changes again. Everything else is checked against it: what
voters apply, what snapshots hold, what clients were told, what watchers saw.
"""

import io
from pathlib import Path

from quorate.metadata_log.image import Image
from quorate.quorum.raft.network.raft_frames import Message
from quorate.quorum.raft.snapshot_store import SNAPSHOT_FILE
from quorate.quorum.raft.storage.journal import JournalWrite, RaftEntry
from quorate.quorum.raft.storage.snapshot_file import read_head
from tests.sim.acknowledgements import Acknowledgements
from tests.sim.elections import Elections
from tests.sim.going_back import GoingBack
from tests.sim.host import Host
from tests.sim.old_folders import does_not_take_part_unnoticed
from tests.sim.pre_votes import PreVotes
from tests.sim.process import HostObserver
from tests.sim.record import Record
from tests.sim.world import Violation, World


class SafetyChecker(HostObserver):
    """Raft's promises, and that what is relied on is on disk."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.hosts: dict[int, Host] = {}
        self.record = Record()
        self.elections = Elections(world, self.record, self.is_enough_to_lead)
        self._acknowledgements = Acknowledgements(self.hosts)
        self._seen: dict[tuple[int, int], tuple[bytes, int]] = {}
        self._going_back = GoingBack()
        self._pre_votes = PreVotes()
        self._checked_commit: dict[int, int] = {}
        self.begun_s = float("inf")
        """When the first voter set was committed: all voters are expected from then on."""

    def watch(self, host: Host) -> None:
        self.hosts[host.voter_id] = host
        host.disk.on_named = lambda name: self._named(host, name)
        host.disk.on_written = lambda change: self._written(host, change)

    def _named(self, host: Host, name: str) -> None:
        if name == SNAPSHOT_FILE:
            self.snapshot_named(host, _snapshot_index(host))

    # -- logs ------------------------------------------------------------------------------------

    def booted(self, host: Host) -> None:
        self._checked_commit[host.voter_id] = 1
        host.snapshot_index = _snapshot_index(host)  # A power failure may have taken a name back.
        self.round_ended(host)

    def round_ended(self, host: Host) -> None:
        process = host.process
        if process is None:
            return
        self._commits_through(host, process.node.commit_index)
        does_not_take_part_unnoticed(host)
        if process.node.is_leader:
            self.elections.leads(host, process)
            self._acknowledgements.knows_its_followers(host, process)

    def _commits_through(self, host: Host, commit_index: int) -> None:
        """The voter takes everything up to here for committed."""
        process = host.process
        checked = self._checked_commit.get(host.voter_id, 1)
        if process is None or commit_index <= checked:
            return
        journal = process.journal
        if commit_index > journal.last_index:
            raise Violation(
                f"voter {host.voter_id} takes {commit_index} for committed, but its log ends at "
                f"{journal.last_index}"
            )
        first = journal.first_index
        for entry in journal[max(0, checked + 1 - first) : commit_index + 1 - first]:
            if entry[1] == first and first > 1 and entry[1] <= self.record.last_index:
                continue  # Perhaps the placeholder of a snapshot.
            self._is_committed(host, entry)
        self._checked_commit[host.voter_id] = commit_index

    def _is_committed(self, host: Host, entry: RaftEntry) -> None:
        command, index, term = entry
        recorded = self.record.entries.get(index)
        if recorded is not None:
            if (recorded.term, recorded.command) != (term, command):
                raise Violation(
                    f"committed entry {index} of term {recorded.term} is another one, of term "
                    f"{term}, at voter {host.voter_id}"
                )
            return
        if index != self.record.last_index + 1:
            raise Violation(
                f"voter {host.voter_id} commits {index} but nobody has committed "
                f"{self.record.last_index + 1}"
            )
        holders = self.wrote(index, term)
        if not self.is_enough_to_commit(holders):
            raise Violation(
                f"voter {host.voter_id} commits entry {index} of term {term}, which is on the "
                f"disks of {holders} alone"
            )
        self.record.append(entry)
        if self.record.image.voter_set.version == 1:
            self.begun_s = min(self.begun_s, self._world.now)

    def wrote(self, index: int, term: int) -> list[int]:
        """The voters that may have acknowledged the entry."""
        return [v for v, host in self.hosts.items() if host.has_written(index, term)]

    def is_enough_to_commit(self, holders: list[int]) -> bool:
        """Whether an entry on the disks of these voters may be taken for committed."""
        return 2 * len(holders) > len(self.hosts)

    def is_enough_to_lead(self, votes: set[int]) -> bool:
        """Whether the votes of these voters elect a leader."""
        return 2 * len(votes) > len(self.hosts)

    def is_enough_to_keep(self, holders: list[int]) -> bool:
        """Whether nobody can be elected without one of these voters."""
        return 2 * len(holders) > len(self.hosts)

    def nothing_is_lost(self) -> None:
        """Every committed entry is on the disks of a majority."""
        for index, recorded in self.record.entries.items():
            holders = [v for v, h in self.hosts.items() if h.disk.holds(index, recorded.term)]
            if not self.is_enough_to_keep(holders):
                raise Violation(f"committed entry {index} is left on the disks of {holders} alone")

    def _written(self, host: Host, change: JournalWrite) -> None:
        """Log matching, by induction: same index and term, same command and same entry before."""
        for command, index, term in change.appended:
            before = host.disk.entries.get(index - 1)
            before_term = -1 if before is None else before[2]
            known = self._seen.get((index, term))
            if known is None or known[1] == -1:
                self._seen[index, term] = (command, before_term)
            elif known[0] != command and index > change.meta.first:
                raise Violation(f"two entries {index} of term {term}: log matching is broken")
            elif before_term not in (-1, known[1]):
                raise Violation(f"entry {index} of term {term} follows two different entries")
        # A crash may come before the round ends: what the disk calls committed is.
        for index in range(self.record.last_index + 1, change.meta.commit_index + 1):
            if index in host.disk.entries:
                self._is_committed(host, host.disk.entries[index])

    def snapshot_named(self, host: Host, last_index: int) -> None:
        """A snapshot took the place of the one before: never of a newer one."""
        if last_index < host.snapshot_index:
            raise Violation(
                f"voter {host.voter_id} replaces its snapshot {host.snapshot_index} by the older "
                f"{last_index}"
            )
        host.snapshot_index = last_index

    # -- what is said ----------------------------------------------------------------------------

    def sent(self, host: Host, to: int, message: Message) -> None:
        match message["type"]:
            case "request_vote":
                self.elections.votes_for(host, host.voter_id, message["term"])
                self._pre_votes.stands(host, message["term"])
            case "response_vote":
                self.elections.votes_for(host, to, message["term"])
            case "next_node_idx":
                self._acknowledgements.sends(host, to, message)
                self._going_back.answers(host, message)
            case "append_entries":
                self._going_back.sends(host, to, message)
            case "pre_vote":
                self._pre_votes.asks(host)
            case "response_pre_vote":
                self._pre_votes.grants(host, to)

    def receives(self, host: Host, peer: int, message: Message) -> None:
        self.elections.receives(host, peer, message)
        self._pre_votes.receives(host, peer, message)
        self._acknowledgements.receives(host, peer)

    def connected(self, host: Host, peer: int) -> None:
        self._going_back.connected(host, peer)

    def disconnected(self, host: Host, peer: int) -> None:
        self._pre_votes.disconnected(host, peer)

    def received(self, host: Host, peer: int, message: Message) -> None:
        if message["type"] == "next_node_idx" and host.process is not None:
            self._going_back.answered(host, peer, message)
            self._acknowledgements.received(host, peer, message)

    # -- state -----------------------------------------------------------------------------------

    def applied(self, host: Host, index: int, command: bytes, result: object) -> None:
        process = host.process
        if process is not None:
            self._commits_through(host, index)
        recorded = self.record.entries.get(index)
        if recorded is None:
            raise Violation(f"voter {host.voter_id} applies {index}, which nobody committed")
        if recorded.command[1:] != command:
            raise Violation(f"voter {host.voter_id} applies something else as entry {index}")
        if recorded.result != result:
            raise Violation(
                f"voter {host.voter_id}: entry {index} gives {result}, elsewhere {recorded.result}"
            )

    def installed(self, host: Host, index: int, image: Image) -> None:
        self.same_state(f"the snapshot {index} of voter {host.voter_id}", image, index)

    def same_state(self, whose: str, image: Image, index: int) -> None:
        """``image`` is the state after the transactions up to ``index``."""
        if index > self.record.last_index:
            raise Violation(f"{whose} holds entries up to {index}, which nobody committed")
        expected = self.record.images.get(image.offset)
        newer = self.record.transactions(image.offset, index)
        if expected is None or newer or image != expected:
            raise Violation(
                f"{whose}: the state at {index} (offset {image.offset}) is not that "
                f"of the committed log; it lacks {newer[:5]}"
            )

    def all_agree(self) -> None:
        """Check at the end that every voter has applied everything, and has the same state."""
        for host in self.hosts.values():
            if host.process is not None:
                node = host.process.node
                whose = f"voter {host.voter_id}"
                self.same_state(whose, host.process.machine.image, node.last_applied)


def _snapshot_index(host: Host) -> int:
    """Return the last index of the snapshot in the folder; 0 if there is none."""
    file = host.disk.files.get(SNAPSHOT_FILE)
    if file is None:
        return 0
    return read_head(Path(SNAPSHOT_FILE), io.BytesIO(bytes(file.data))).last_index
