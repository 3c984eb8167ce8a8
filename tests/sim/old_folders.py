"""A voter's data folder is replaced by an older copy of it.

The copy is put in its place while no more voters are away than the quorum bears, the one with the
old folder counted: its peers then know between them what it has forgotten. The voter either leaves,
and gets its newest folder back, or what it has forgotten does no harm.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from quorate.quorum.raft.leaving import LeavesQuorum, VoterStale
from quorate.quorum.raft.staleness import lacking
from quorate.quorum.raft.storage.promises import Promise
from tests.sim.disk import SimulatedDisk
from tests.sim.host import Host
from tests.sim.world import Violation, World

SETTLES_S: Final = 1.5
"""Everybody is connected again after this time, and there is a leader."""

FOUND_OUT_S: Final = 5.0
"""A voter takes part, or has left, by then: longer than it waits for the others."""

MOST_ALONE_S: Final = 2.5
LASTS_S: Final = SETTLES_S + MOST_ALONE_S + FOUND_OUT_S


class OldFolders:
    """Puts old copies back."""

    def __init__(
        self,
        world: World,
        hosts: dict[int, Host],
        isolate: Callable[[Host, float], None],
        write: Callable[[], None],
    ) -> None:
        """``isolate`` cuts a host off for some seconds, and ``write`` lets all clients write."""
        self._world = world
        self._hosts = hosts
        self._isolate = isolate
        self._write = write
        self.found = 0

    @property
    def _spare(self) -> int:
        """The number of voters that may be away beside the one with the old folder."""
        return (len(self._hosts) - 1) // 2 - 1

    def put_one_back(self) -> None:
        """Begin. Nothing else may go wrong for ``LASTS_S``."""
        victim = self._world.random.choice(list(self._hosts.values()))
        copy = copy_of(victim)
        alone_s = self._world.between(1.2, MOST_ALONE_S)
        if self._world.chance(0.7):
            # The others elect a new leader meanwhile, of whom those that are cut off know nothing.
            for host in self._some_of([self._leader()], self._spare + 1, victim):
                self._isolate(host, alone_s)
        self._write()
        self._world.after(0.7 * alone_s, self._write)
        self._world.after(alone_s + 0.05, partial(self._replace, victim, copy))

    def _some_of(self, first: list[Host | None], count: int, victim: Host) -> list[Host]:
        others = [host for host in self._hosts.values() if host is not victim]
        self._world.random.shuffle(others)
        preferred = [host for host in first if host is not None and host is not victim]
        return list(dict.fromkeys([*preferred, *others]))[:count]

    def _replace(self, victim: Host, copy: SimulatedDisk) -> None:
        if not victim.is_up:
            return
        promised = promises_of(victim, self._hosts.values())
        away = self._some_of([self._leader()], self._spare, victim)
        away_ids = {host.voter_id for host in away}
        for host in away:
            host.stays_down_until = self._world.now + 3.5
            host.kill(power_lost=False)
        if self._world.chance(0.4):
            for host in self._hosts.values():
                if host is not victim and host.is_up and _remembers(host, victim):
                    host.kill(power_lost=True)
        victim.promised = {v: p for v, p in promised.items() if v not in away_ids}
        victim.note("gets an old copy of its folder")
        victim.kill(power_lost=True)
        victim.set_aside = victim.disk
        victim.disk = copy
        before, victim.on_leaves = victim.on_leaves, partial(self._left, victim, victim.on_leaves)
        for host in (*self._hosts.values(),):
            self._world.after(self._world.between(0.01, 0.3), host.boot)
        for host in away:
            self._world.after(3.6, host.boot)
        self._world.after(FOUND_OUT_S - 0.5, partial(self._goes_on, victim, before))

    def _leader(self) -> Host | None:
        leading = [h for h in self._hosts.values() if h.process and h.process.node.is_leader]
        return max(leading, key=lambda h: h.process.node.term if h.process else 0, default=None)

    def _left(
        self, victim: Host, before: Callable[[LeavesQuorum], None], leaving: LeavesQuorum
    ) -> None:
        if not isinstance(leaving, VoterStale) or victim.set_aside is None:
            before(leaving)
            return
        self.found += 1
        victim.note(f"gets its newest folder back: {leaving}")
        victim.disk, victim.set_aside = victim.set_aside, None
        victim.promised = {}
        self._world.after(0.2, victim.boot)

    def _goes_on(self, victim: Host, before: Callable[[LeavesQuorum], None]) -> None:
        victim.on_leaves = before
        victim.set_aside = None
        victim.promised = {}


def promises_of(victim: Host, hosts: Iterable[Host]) -> dict[int, Promise]:
    """Return what the voters that are up know the victim to have promised to them."""
    known = {
        host.voter_id: host.process.journal.promises.get(victim.voter_id)
        for host in hosts
        if host.process is not None and host is not victim
    }
    return {voter_id: promise for voter_id, promise in known.items() if promise is not None}


def does_not_take_part_unnoticed(host: Host) -> None:
    """Raise ``Violation`` if the voter takes part with a folder that lacks what it promised."""
    process = host.process
    if not host.promised or process is None or not process.node.admission.takes_part:
        return
    promised, host.promised = host.promised, {}
    for voter_id, promise in promised.items():
        lacks = lacking(promise, voter_id, process.journal)
        if lacks:
            raise Violation(
                f"voter {host.voter_id} takes part with an old folder: voter {voter_id} {lacks}"
            )


def _remembers(host: Host, victim: Host) -> bool:
    """Whether the host has on its disk all that the victim has promised to it."""
    meta, process = host.disk.meta, host.process
    if meta is None or process is None:
        return True
    return meta.promises.get(victim.voter_id) == process.journal.promises.get(victim.voter_id)


def copy_of(host: Host) -> SimulatedDisk:
    """Return a copy of the host's disk, as a copy of a folder that is in use: what is synced."""
    copy = host.disk.copied()
    copy.crash()
    return copy
