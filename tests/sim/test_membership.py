"""Tests of what the simulated operator may do, and of what disks that are gone still count for."""

from collections.abc import Iterator

import pytest

from quorate.metadata_log.image import VoterSet
from tests.sim.globals import simulated
from tests.sim.membership import MembershipSimulation

SEED_OF_THREE_VOTERS = 8
ATTEMPTS = 50


@pytest.fixture
def simulation() -> Iterator[MembershipSimulation]:
    """Three voters and two spares, all of them up, in a quorum that has begun."""
    simulation = MembershipSimulation(SEED_OF_THREE_VOTERS, steps=0, echo=None)
    with simulated(simulation.world):
        simulation.run()
        assert [member.voter_id for member in simulation.safety.members.voters] == [1, 2, 3]
        yield simulation
        simulation.abandon()


@pytest.mark.parametrize("kept", [(1, 2), (1, 3), (2, 3)])
def test_no_disk_is_wiped_that_a_proposed_voter_set_needs(
    simulation: MembershipSimulation, kept: tuple[int, int]
) -> None:
    members, hosts = simulation.safety.members, simulation.hosts
    before = {v: host.directory_id for v, host in hosts.items()}
    rest = tuple(member for member in members.voters if member.voter_id in kept)
    simulation.operator.proposed.append(VoterSet(rest, members.version))
    for _ in range(ATTEMPTS):
        simulation.operator.wipe_one()
    wiped = {v for v, host in hosts.items() if host.directory_id != before[v]}
    assert wiped == {1, 2, 3, 4, 5} - set(kept)


def test_what_a_voter_acknowledged_counts_though_its_disk_is_gone_since(
    simulation: MembershipSimulation,
) -> None:
    safety = simulation.safety
    last = safety.record.last_index
    term = safety.record.entries[last].term
    before = {v: host.directory_id for v, host in simulation.hosts.items()}
    assert sorted(safety.wrote(last, term)) == [1, 2, 3]
    for _ in range(ATTEMPTS):
        simulation.operator.wipe_one()
    wiped = [v for v in (1, 2, 3) if simulation.hosts[v].directory_id != before[v]]
    assert len(wiped) == 1
    assert not simulation.hosts[wiped[0]].disk.holds(last, term)
    assert sorted(safety.wrote(last, term)) == [1, 2, 3]
    assert wiped[0] not in safety.wrote(last + 1, term)
