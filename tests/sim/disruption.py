"""A healthy leader is not unseated (P8, P17): whenever another one rises, there was a reason."""

from typing import Final, NamedTuple

from tests.sim.checkers import SafetyChecker
from tests.sim.faults import Health
from tests.sim.host import Host
from tests.sim.network import Network
from tests.sim.world import Violation, World

WELL_FOR_S: Final = 2.0
"""Longer than it takes until connections are made anew, and an election ends."""


class _Leader(NamedTuple):
    host: Host
    boot: int
    term: int
    since: float


class DisruptionChecker:
    """A checker that is told of every new leader."""

    def __init__(
        self,
        world: World,
        hosts: dict[int, Host],
        health: Health,
        network: Network,
        safety: SafetyChecker,
    ) -> None:
        self._world = world
        self._safety = safety
        self._hosts = hosts
        self._health = health
        self._network = network
        self._leader: _Leader | None = None

    def new_leader(self, host: Host, term: int) -> None:
        before = self._leader
        if before is not None and term > before.term and self._was_well(before):
            raise Violation(
                f"voter {host.voter_id} leads in term {term} though voter "
                f"{before.host.voter_id} led a healthy majority in term {before.term}"
            )
        if before is None or term > before.term:
            self._leader = _Leader(host, host.boots, term, self._world.now)

    def _was_well(self, leader: _Leader) -> bool:
        """It led a majority for a while in which it, they and the links between had no trouble."""
        if self._network.conditions.is_wild:
            return False
        since = self._world.now - WELL_FOR_S
        if self._safety.begun_s > since:
            # The first start needs every voter: a healthy one may not know yet that it may take
            # part, and answers nobody, so two of three can be too few.
            return False
        own = leader.host.voter_id
        if leader.since > since or leader.host.boots != leader.boot or not leader.host.is_up:
            return False
        if self._health.host_well_since(own) > since:
            return False
        followers = [
            voter_id
            for voter_id, host in self._hosts.items()
            if voter_id != own
            and host.is_up
            and self._health.host_well_since(voter_id) <= since
            and self._health.link_well_since(own, voter_id) <= since
        ]
        return 2 * (len(followers) + 1) > len(self._hosts)
