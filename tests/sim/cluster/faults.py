"""Draws what goes wrong from the seed; each run has its own favourites (swarm testing)."""

from collections.abc import Callable
from functools import partial

from tests.sim.cluster.cuts import WAYS, Cuts
from tests.sim.cluster.disk_faults import DiskFaults
from tests.sim.cluster.late_writes import LateWrites
from tests.sim.cluster.machine import Machine
from tests.sim.cluster.operator import Operator
from tests.sim.cluster.quorum import SimulatedQuorum
from tests.sim.cluster.rpc import Mischief
from tests.sim.cluster.stalls import BOUND_S, COMMITS_WITHIN_S, StallCheck
from tests.sim.network import Network
from tests.sim.world import World


class Faults:
    """Does one thing at a time that may happen to a cluster."""

    def __init__(
        self,
        world: World,
        network: Network,
        quorum: SimulatedQuorum,
        machines: dict[int, Machine],
        operator: Operator,
        *,
        session_s: float,
    ) -> None:
        self._world = world
        self._network = network
        self._quorum = quorum
        self._machines = machines
        self._operator = operator
        self._session_s = session_s
        self.is_over = False
        self.mischief = Mischief()
        self._late_writes = LateWrites(world, quorum, self._overtake)
        cuts = self._cuts = Cuts(world, network, quorum, machines, self._seconds)
        self._stalls = StallCheck(world, quorum, machines)
        disks = self._disks = DiskFaults(world, quorum, operator, machines, self._seconds)
        kinds: list[tuple[Callable[[], None], float]] = [
            (self._kill_one, 3.0),
            (self._kill_some, 1.0),
            (self._lose_power, 2.0),
            (self._bounce, 3.0),
            (self._stop_in_order, 1.5),
            (self._pause, 3.0),
            (self._leave_one_alone, 1.0),
            (cuts.pair, 2.0),
            (cuts.isolate, 2.0),
            (cuts.from_quorum, 2.0),
            (cuts.between_brokers, 1.0),
            (cuts.flap, 0.3),
            (self._cut_a_well_cluster, 1.5),
            (self._quorum_away, 1.5),
            (self._lag_a_watch, 1.5),
            (self._hold_writes_back, 1.5),
            (self._late_writes.wait_for_a_replica, 2.0),
            (disks.slow, 1.5),
            (disks.full, 1.0),
            (disks.damage_a_log, 1.0),
            (self._slow_network, 1.0),
            (self._reset_links, 1.5),
            (self._harm_control_requests, 2.0),
            (self._miss_a_removal, 0.7),
            (operator.create, 2.0),
            (operator.delete, 1.0),
            (operator.replace, 1.5),
            (operator.grow, 0.7),
            (operator.shrink, 0.7),
            (operator.shrink_and_grow, 2.0),
            (operator.elect, 0.7),
            (operator.remove_controller, 1.5),
            (operator.resign_controller, 1.0),
            (operator.reassign, 3.0),
            (operator.cancel_reassignments, 1.0),
            (operator.move_controller, 1.0),
            (operator.upgrade, 1.0),
            (operator.risk_losses, 0.3),
            (operator.change_min_insync, 1.0),
            (self._kill_controller, 1.5),
            (self._depose_a_blind_controller, 1.5),
            (disks.replace, 0.5),
            (disks.lose_a_row, 0.5),
            (disks.mistake_a_row, 0.5),
            (disks.shorten_a_log, 1.0),
            (disks.put_an_old_copy_back, 0.7),
            (self._crash_in_the_middle, 3.0),
        ]
        weights = [weight * world.random.choice([0, 0.3, 1, 1, 3]) for _, weight in kinds]
        self._kinds = [kind for kind, _ in kinds]
        self._weights = weights if any(weights) else [1.0] * len(kinds)

    def one(self) -> None:
        """The next fault."""
        (kind,) = self._world.random.choices(self._kinds, self._weights)
        kind()

    def went_down(self, machine: Machine) -> None:
        """Somebody starts it again, soon or after its session has ended."""
        draw = self._world.random
        later_s = draw.choice([0.02, 0.3, 1.0, 2 * self._session_s]) * (0.5 + draw.random())
        self._world.after(0.1 if self.is_over else later_s, machine.boot)

    def heal_everything(self) -> None:
        """Nothing goes wrong from now on, and what is down comes up."""
        self.is_over = True
        self._quorum.lost = 0.0
        self._heal()

    def _heal(self) -> None:
        self._network.heal_all()
        self._quorum.cuts.clear()
        self._quorum.lagging.clear()
        self._late_writes.clear()
        self.mischief = Mischief()
        for machine in self._machines.values():
            machine.paused_until = min(machine.paused_until, self._world.now + 0.2)
            machine.spare()
            self._disks.heal(machine)
            process = machine.process
            if process is not None:
                process.rpc.mischief = self.mischief
                has_failed = process.store is not None and process.store.failure is not None
                if has_failed or (machine.is_old and self.is_over):
                    machine.kill(power_lost=False)
            machine.boot()

    # -- processes -------------------------------------------------------------------------------

    def _any(self) -> Machine:
        return self._machines[self._world.random.choice(sorted(self._machines))]

    def _kill_one(self) -> None:
        self._any().kill(power_lost=False)

    def _kill_some(self) -> None:
        power_lost = self._world.chance(0.5)
        for machine in self._machines.values():
            if self._world.chance(0.6):
                machine.kill(power_lost=power_lost)

    def _kill_controller(self) -> None:
        machine = self._machines.get(self._quorum.image.controller_id)
        if machine is not None:
            machine.kill(power_lost=self._world.chance(0.3))

    def _crash_in_the_middle(self) -> None:
        """A process ends between any two things that leave it: half of a step is done."""
        machine = self._any()
        effects = self._world.random.choice([1, 3, 10, 50])
        machine.crash_after(
            self._world.random.randint(1, effects), power_lost=self._world.chance(0.5)
        )

    def _depose_a_blind_controller(self) -> None:
        """It does not see that another holds the office, and something happens to decide upon."""
        blind = self._machines.get(self._quorum.image.controller_id)
        if blind is None:
            return
        blind.note("goes blind, and is deposed")
        self._quorum.lagging[blind.voter_id] = self._world.random.choice([0.5, 2.0])
        self._world.after(self._seconds(), partial(self._keeps_up, blind.voter_id))
        self._operator.remove_controller()
        other = self._any()
        if other is not blind:
            other.kill(power_lost=False)
        self._operator.create()

    def _lose_power(self) -> None:
        self._any().kill(power_lost=True)

    def _bounce(self) -> None:
        """Down and up again before anybody looks."""
        machine = self._any()
        if machine.process is not None:
            machine.kill(power_lost=self._world.chance(0.2))
            self._world.after(self._world.between(0.001, 0.05), machine.boot)

    def _stop_in_order(self) -> None:
        machine = self._any()
        process = machine.process
        if process is not None:
            machine.note("is told to stop")
            machine.deliver(process, process.stop)

    def _pause(self) -> None:
        machine = self._any()
        seconds = self._world.random.choice([0.1, 1.0, 2 * self._session_s])
        machine.note(f"is stopped for {seconds:.1f} s")
        machine.pause(seconds * self._world.between(0.5, 1.5))

    def _leave_one_alone(self) -> None:
        """All others stand still until their sessions are over: what producers wait for is in the
        log of a leader that may take nothing new, and is sent to it again."""
        machines = self._machines.values()
        candidates = [one for one in machines if one.process and one.process.needs_others]
        if not candidates:
            return
        alone = self._world.random.choice(candidates)
        alone.note("is left alone")
        seconds = self._session_s + self._world.between(2.0, 3.0)
        for machine in machines:
            if machine is not alone:
                machine.pause(seconds)
        self._world.run_until(self._world.now + seconds)

    # -- the network -----------------------------------------------------------------------------

    def _seconds(self) -> float:
        return self._world.random.choice([0.2, 1.0, 1.5 * self._session_s, 4.0]) * (
            self._world.between(0.5, 1.5)
        )

    def _slow_network(self) -> None:
        factor = self._world.random.choice([10.0, 100.0])
        self._world.note(f"the network is {factor:.0f} times slower")
        self._network.delay_factor = factor
        self._world.after(self._seconds(), self._network_is_well)

    def _network_is_well(self) -> None:
        self._network.delay_factor = 1.0

    def _reset_links(self) -> None:
        machine = self._any()
        machine.note("loses its connections")
        for link in self._network.links_of(machine.voter_id):
            if self._world.chance(0.7):
                self._network.reset(link)

    def _harm_control_requests(self) -> None:
        draw = self._world.random
        mischief = Mischief(draw.choice([0.0, 0.2, 0.6]), draw.choice([0.0, 0.3, 1.0]))
        self._world.note(f"control requests: {mischief}")
        self._set_mischief(mischief)
        self._world.after(self._seconds(), partial(self._set_mischief, Mischief()))

    def _miss_a_removal(self) -> None:
        """Lose every control request while partitions are removed and added again."""
        self._world.note("control requests are lost while partitions are removed")
        self._set_mischief(Mischief(1.0, 0.0))
        self._operator.shrink_and_grow()
        seconds = self._world.random.choice([1.0, 6.0])
        self._world.after(seconds, partial(self._set_mischief, Mischief()))

    def _set_mischief(self, mischief: Mischief) -> None:
        self.mischief = mischief
        for machine in self._machines.values():
            if machine.process is not None:
                machine.process.rpc.mischief = mischief

    def _cut_a_well_cluster(self) -> None:
        """One cut between brokers and nothing else: no partition may stall for long."""
        if len(self._machines) < 3 or any(one.is_old for one in self._machines.values()):
            return
        self._world.note("everything is healed for a while")
        lost, self._quorum.lost = self._quorum.lost, 0.0
        self._heal()
        if self._stalls.becomes_well():
            one = self._world.random.choice([*sorted(self._machines), *self._stalls.in_charge()])
            visible = frozenset(self._machines) - {one}
            owed = self._stalls.owed(visible)
            ways = self._world.random.choice(WAYS)
            self._cuts.cut_broker(one, ways, BOUND_S + COMMITS_WITHIN_S + 0.1)
            self._stalls.wait(visible, owed)
        self._quorum.lost = lost

    # -- the quorum ------------------------------------------------------------------------------

    def _quorum_away(self) -> None:
        seconds = self._world.random.choice([0.3, 1.0, 6.0]) * self._world.between(0.5, 1.5)
        self._world.note(f"the quorum has no leader for {seconds:.1f} s")
        self._quorum.fail_over(seconds)

    def _lag_a_watch(self) -> None:
        broker_id = self._any().voter_id
        lag_s = self._world.random.choice([0.1, 0.5, 2.0])
        self._world.note(f"watch of {broker_id} lags by {lag_s} s")
        self._quorum.lagging[broker_id] = lag_s
        self._world.after(self._seconds(), partial(self._keeps_up, broker_id))

    def _hold_writes_back(self) -> None:
        self._late_writes.hold_back(self._any().voter_id, self._seconds())

    def _overtake(self, leader: int, joining: int) -> None:
        """The controller decides before the leader's ISR change is there, and who joins by it
        falls behind."""
        seconds = self._world.between(3.0, 6.0)
        self._cuts.cut(leader, joining, seconds)
        self._cuts.cut(joining, leader, seconds)
        decides = [self._operator.elect, self._operator.reassign, self._operator.reassign]
        self._world.random.choice(decides)()

    def _keeps_up(self, broker_id: int) -> None:
        self._quorum.lagging.pop(broker_id, None)
