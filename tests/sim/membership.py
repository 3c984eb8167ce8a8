"""Runs in which voters come, go, lose their disks and hand over, besides all that goes wrong.

An operator proposes one change after the other at whoever leads, with less care than the product's
own commands take: voters are promoted before they have caught up, and removed while others are
down. What is removed, and sometimes a member, loses its disk and starts again with an empty one.
"""

from functools import partial
from typing import Final

import msgspec

from quorate.common.types import ID_BYTES
from quorate.metadata_log.codec import encode_transaction
from quorate.metadata_log.image import VoterSet
from quorate.metadata_log.records import Operation, QuorumVoter, QuorumVoterSet, Transaction
from quorate.quorum.quorum_config import QuorumConfig
from quorate.quorum.raft.driver import ProposalRun, Settled
from quorate.quorum.raft.leadership import TransferRefused
from quorate.quorum.raft.leaving import LeavesQuorum, RemovedFromQuorum
from quorate.quorum.raft.raft_node import RaftNode
from tests.sim.checkers import SafetyChecker
from tests.sim.disk import SimulatedDisk
from tests.sim.host import Host
from tests.sim.process import Process
from tests.sim.simulation import Simulation, config_of
from tests.sim.world import Violation, World

SPARE_HOSTS: Final = 2


class MembershipChecker(SafetyChecker):
    """Majorities are those of the committed voter set."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._before = VoterSet()
        self._now = VoterSet()
        self.configured: list[int] = []
        self.ever_out: set[int] = set()
        """Voters that some committed set did not name."""
        self._lost: list[tuple[int, bytes, SimulatedDisk]] = []
        """Voter, data folder and disk."""

    @property
    def members(self) -> VoterSet:
        """The newest committed set."""
        newest = self.record.image.voter_set
        if newest.version != self._now.version:
            self._before, self._now = self._now, newest
            self.ever_out |= {v for v in self.hosts if newest.voter(v) is None}
        return self._now

    def loses_its_disk(self, host: Host) -> None:
        self._lost.append((host.voter_id, host.directory_id, host.disk))

    def wrote(self, index: int, term: int) -> list[int]:
        """Return the voters that wrote the entry, also those that have lost their disk since they
        acknowledged it. That is safe as long as nobody is elected without the others, see
        ``is_enough_to_keep``."""
        _ = self.members
        lost = [
            voter_id
            for voter_id, directory_id, disk in self._lost
            if disk.holds(index, term) and self._names(voter_id, directory_id)
        ]
        return [*super().wrote(index, term), *lost]

    def _names(self, voter_id: int, directory_id: bytes) -> bool:
        known = [s.voter(voter_id) for s in (self._now, self._before)]
        return any(member is not None and member.directory_id == directory_id for member in known)

    def is_enough_to_commit(self, holders: list[int]) -> bool:
        """Return whether it is enough by the newest committed set, or by the one before: the leader
        has not applied all."""
        _ = self.members
        return any(
            2 * len(self._voters(voter_set) & set(holders)) > len(self._voters(voter_set))
            for voter_set in (self._now, self._before)
        )

    def is_enough_to_lead(self, votes: set[int]) -> bool:
        return self.is_enough_to_commit([*votes])

    def is_enough_to_keep(self, holders: list[int]) -> bool:
        voters = self._voters(self.members)
        others = [v for v in voters - set(holders) if self.is_member(self.hosts[v])]
        return 2 * len(others) <= len(voters)

    def _voters(self, voter_set: VoterSet) -> set[int]:
        if not voter_set.version:
            return set(self.configured)
        return {int(member.voter_id) for member in voter_set.voters if not member.observer}

    def is_member(self, host: Host) -> bool:
        """The committed set names it, with the disk that it has."""
        member = self.members.voter(host.voter_id)
        return member is not None and member.directory_id in (b"", host.directory_id)


class Operator:
    """Changes the membership at random."""

    def __init__(self, world: World, hosts: dict[int, Host], checker: MembershipChecker) -> None:
        self._world = world
        self._hosts = hosts
        self._checker = checker
        self._pace_s = world.random.choice([0.02, 0.1, 0.4])
        self._folders = 0
        self.proposed: list[VoterSet] = []
        """Each with the version of the set before it, without which it cannot take effect."""
        self.is_stopping = False
        for host in hosts.values():
            host.on_leaves = partial(self._left, host)
        world.after(1.0, self._act)

    def completed(self, settled: Settled) -> None:
        """Do nothing: the log shows what became of the change."""

    def _act(self) -> None:
        if self.is_stopping:
            return
        self._world.after(self._world.random.expovariate(1 / self._pace_s), self._act)
        leading = [
            host.process
            for host in self._hosts.values()
            if host.process is not None and host.process.node.leads_caught_up
        ]
        if leading:
            act = self._world.random.choice([self._change] * 6 + [self._transfer, self._wipe_one])
            act(self._world.random.choice(leading))

    # -- changes ---------------------------------------------------------------------------------

    def _change(self, leader: Process) -> None:
        before = leader.machine.image.voter_set
        after = self._world.random.choice([self._added, self._promoted, self._removed])(
            before, leader.node
        )
        if after is None:
            return
        self._world.note(f"operator: {before.version} -> {[_brief(v) for v in after]}")
        self.proposed.append(VoterSet(after, before.version))
        record = QuorumVoterSet(expected_version=before.version, voters=after)
        operation = Operation(records=(record,))
        command = encode_transaction(Transaction(operations=(operation,)))
        leader.driver.submit(ProposalRun([command], self))

    def _added(self, before: VoterSet, _leader: RaftNode) -> tuple[QuorumVoter, ...] | None:
        strangers = [host for v, host in self._hosts.items() if before.voter(v) is None]
        if not strangers:
            return None
        config = self._world.random.choice(strangers).config
        new = msgspec.structs.replace(config.own.as_member(), observer=True)
        return (*before.voters, new)

    def _promoted(self, before: VoterSet, leader: RaftNode) -> tuple[QuorumVoter, ...] | None:
        for member in before.voters:
            directory_id = member.directory_id or leader.admission.directory_of(member.voter_id)
            if member.observer and leader.transport.is_connected(member.voter_id):
                voter = msgspec.structs.replace(member, observer=False, directory_id=directory_id)
                return tuple(voter if m is member else m for m in before.voters)
        return None

    def _removed(self, before: VoterSet, leader: RaftNode) -> tuple[QuorumVoter, ...] | None:
        """Return the voters without one of them; None if the rest could never go on, because too
        many of their disks are gone, or if that one leads."""
        gone = self._world.random.choice(before.voters)
        rest = tuple(member for member in before.voters if member is not gone)
        return rest if self._can_go_on(rest) and gone.voter_id != leader.own.voter_id else None

    def _can_go_on(self, members: tuple[QuorumVoter, ...], wiped: int = 0) -> bool:
        voters = [member for member in members if not member.observer]
        whole = [
            member
            for member in voters
            if member.voter_id != wiped
            and member.directory_id == self._hosts[member.voter_id].directory_id
        ]
        return 2 * len(whole) > len(voters)

    def _transfer(self, leader: Process) -> None:
        target = self._world.random.choice(list(self._hosts))

        def begin(node: RaftNode) -> None:
            try:
                node.begin_transfer(target)
            except TransferRefused:
                return
            self._world.note(f"operator: voter {node.own.voter_id} hands over to {target}")

        leader.driver.call(begin)

    # -- disks -----------------------------------------------------------------------------------

    def _wipe_one(self, _leader: Process) -> None:
        self.wipe_one()

    def wipe_one(self) -> None:
        """A member, but never so many that what is committed could be lost."""
        host = self._world.random.choice(list(self._hosts.values()))
        sets = self._sets_in_use()
        may_be_promoted = any(
            member.voter_id == host.voter_id and member.observer
            for voter_set in sets
            for member in voter_set.voters
        )
        can_go_on = all(self._can_go_on(s.voters, wiped=host.voter_id) for s in sets)
        may_go = can_go_on and not may_be_promoted and not self._would_begin_anew(host)
        if may_go and self._is_held_without(host):
            host.kill(power_lost=True)
            self._wipe(host)

    def _sets_in_use(self) -> list[VoterSet]:
        """Committed, still followed by somebody, or on the way to being committed.

        A disk that the majority of a proposed set needs must not go before the set is committed:
        the voters before it can commit it without that disk, and then nobody can go on.
        """
        newest = self._checker.members
        self.proposed = [s for s in self.proposed if s.version >= newest.version]
        applied = [h.process.machine.image.voter_set for h in self._hosts.values() if h.process]
        return [s for s in (newest, *applied, *self.proposed) if s.version]

    def _would_begin_anew(self, host: Host) -> bool:
        """Return whether, without this disk, somebody's configuration names voters with empty ones
        alone.

        To them that is the very first start of a quorum, until they hear of another.
        """
        empty = {
            v for v, other in self._hosts.items() if other is host or other.disk.last_index < 2
        }
        return any(
            {int(voter.voter_id) for voter in other.config.voters} <= empty
            for other in self._hosts.values()
        )

    def _is_held_without(self, host: Host) -> bool:
        """Everything committed is on a majority that does not need this disk."""
        entries = self._checker.record.entries
        last = self._checker.record.last_index
        holders = [
            v
            for v, other in self._hosts.items()
            if other is not host and other.disk.holds(last, entries[last].term)
        ]
        return self._checker.is_enough_to_keep(holders)

    def _wipe(self, host: Host) -> None:
        self._folders += 1
        host.note(f"gets an empty disk, folder {self._folders}")
        self._checker.loses_its_disk(host)
        latency_s = host.disk.latency_s
        host.disk = SimulatedDisk(self._world, host.effect)
        host.disk.latency_s = latency_s
        host.snapshot_index = 0
        host.first_voters = {}
        # As somebody would configure it who knows who is there.
        members = {int(member.voter_id) for member in self._checker.members.voters}
        host.config = config_of(host.voter_id, sorted({*members, host.voter_id}))
        host.directory_id = f"folder {self._folders}".encode().ljust(ID_BYTES, b".")
        self._checker.watch(host)

    def _left(self, host: Host, leaving: LeavesQuorum) -> None:
        host.note(f"leaves: {leaving}")
        if isinstance(leaving, RemovedFromQuorum):
            _ = self._checker.members
            if host.voter_id not in self._checker.ever_out:
                raise Violation(f"voter {host.voter_id} thinks that it was removed: {leaving}")
            is_out = all(s.voter(host.voter_id) is None for s in self._sets_in_use())
            if is_out and not self._would_begin_anew(host):
                self._wipe(host)
        self._world.after(self._world.between(0.1, 2.0), host.boot)


class MembershipSimulation(Simulation):
    """A run with an operator and some hosts that are no voters at first."""

    safety: MembershipChecker

    def _checker(self) -> SafetyChecker:
        return MembershipChecker(self.world)

    def _configs(self, voters: int) -> list[QuorumConfig]:
        first = range(1, voters + 1)
        self.safety.configured = list(first)
        spares = range(voters + 1, voters + 1 + SPARE_HOSTS)
        return [config_of(n, first) for n in first] + [config_of(n, [*first, n]) for n in spares]

    def _set_up(self) -> None:
        super()._set_up()
        self.safety.elections.on_leader = lambda _host, _term: (
            None
        )  # Handing over is nobody's fault.
        self.faults.keeps_folders = True  # The bounds of these faults are those of a fixed set.
        self.operator = Operator(self.world, self.hosts, self.safety)

    def _end_well(self) -> None:
        self.operator.is_stopping = True
        self.services.known = self._members
        super()._end_well()

    def _members(self) -> list[int]:
        """Whom clients ask in the end, as the product's do, which learn the newest set from any
        voter. One that is no member lets a read wait for a leader that it will never have."""
        members = [v for v, host in sorted(self.hosts.items()) if self.safety.is_member(host)]
        return members or sorted(self.hosts)

    def _counts(self, host: Host) -> bool:
        return self.safety.is_member(host)


def _brief(member: QuorumVoter) -> str:
    return f"{member.voter_id}{'?' if member.observer else ''}"
