"""What goes wrong, drawn from the seed; each run has its own favourites (swarm testing)."""

from collections.abc import Callable
from functools import partial
from itertools import permutations
from pathlib import Path

from quorate.broker.log.segments.damage import DamagedBatch
from tests.sim.cluster.clients import CLIENT_HOST
from tests.sim.cluster.late_writes import LateWrites
from tests.sim.cluster.machine import Machine
from tests.sim.cluster.operator import Operator
from tests.sim.cluster.quorum import SimulatedQuorum
from tests.sim.cluster.rpc import Mischief
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
        kinds: list[tuple[Callable[[], None], float]] = [
            (self._kill_one, 3.0),
            (self._kill_some, 1.0),
            (self._lose_power, 2.0),
            (self._bounce, 3.0),
            (self._stop_in_order, 1.5),
            (self._pause, 3.0),
            (self._cut_pair, 2.0),
            (self._isolate, 2.0),
            (self._cut_from_quorum, 2.0),
            (self._quorum_away, 1.5),
            (self._lag_a_watch, 1.5),
            (self._hold_writes_back, 1.5),
            (self._late_writes.wait_for_a_replica, 2.0),
            (self._slow_disk, 1.5),
            (self._full_disk, 1.0),
            (self._damage_a_log, 1.0),
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
            (self._replace_disk, 0.5),
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
        self._network.heal_all()
        self._quorum.cuts.clear()
        self._quorum.lagging.clear()
        self._late_writes.clear()
        self._quorum.lost = 0.0
        self.mischief = Mischief()
        for machine in self._machines.values():
            machine.paused_until = min(machine.paused_until, self._world.now + 0.2)
            machine.spare()
            machine.disk.latency_s = 0.001
            machine.disk.is_full = False
            process = machine.process
            if process is not None:
                process.rpc.mischief = self.mischief
                has_failed = process.store is not None and process.store.failure is not None
                if has_failed or machine.is_old:
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

    def _replace_disk(self) -> None:
        """The machine comes back with an empty disk (rule 8)."""
        machine = self._any()
        machine.kill(power_lost=True)
        machine.note("gets an empty disk")
        machine.disk.replace()

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

    # -- the network -----------------------------------------------------------------------------

    def _seconds(self) -> float:
        return self._world.random.choice([0.2, 1.0, 1.5 * self._session_s, 4.0]) * (
            self._world.between(0.5, 1.5)
        )

    def _cut(self, sender: int, receiver: int, seconds: float) -> None:
        self._network.cut(sender, receiver)
        self._world.after(seconds, partial(self._network.heal, sender, receiver))

    def _cut_pair(self) -> None:
        hosts = [*sorted(self._machines), CLIENT_HOST]
        if len(hosts) < 2:
            return
        a, b = self._world.random.sample(hosts, 2)
        both, seconds = self._world.chance(0.5), self._seconds()
        self._world.note(f"cut {a} {'-' if both else '>'} {b} for {seconds:.1f} s")
        self._cut(a, b, seconds)
        if both:
            self._cut(b, a, seconds)

    def _isolate(self) -> None:
        """One broker is cut off from the others, perhaps from the quorum as well."""
        machine, seconds = self._any(), self._seconds()
        self._world.note(f"cut {machine.voter_id} off for {seconds:.1f} s")
        for a, b in permutations(self._machines, 2):
            if machine.voter_id in (a, b):
                self._cut(a, b, seconds)
        if self._world.chance(0.4):
            self._cut_quorum(machine.voter_id, seconds)

    def _cut_from_quorum(self) -> None:
        self._cut_quorum(self._any().voter_id, self._seconds())

    def _cut_quorum(self, broker_id: int, seconds: float) -> None:
        self._world.note(f"cut {broker_id} from the quorum for {seconds:.1f} s")
        ways = self._world.random.choice([(True,), (False,), (True, False), (True, False)])
        for towards in ways:
            self._quorum.cuts.add((broker_id, towards))
            self._world.after(seconds, partial(self._quorum.cuts.discard, (broker_id, towards)))

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
        """Nobody hears a word of the controller while partitions go and come again."""
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
        self._cut(leader, joining, seconds)
        self._cut(joining, leader, seconds)
        decides = [self._operator.elect, self._operator.reassign, self._operator.reassign]
        self._world.random.choice(decides)()

    def _keeps_up(self, broker_id: int) -> None:
        self._quorum.lagging.pop(broker_id, None)

    # -- disks -----------------------------------------------------------------------------------

    def _slow_disk(self) -> None:
        machine = self._any()
        disk, before = machine.disk, machine.disk.latency_s
        disk.latency_s = self._world.random.choice([0.03, 0.3, 1.0])
        machine.note(f"disk takes {disk.latency_s} s")

        def well() -> None:
            disk.latency_s = min(disk.latency_s, max(before, 0.001))

        self._world.after(self._seconds(), well)

    def _full_disk(self) -> None:
        """Writing fails until there is room; perhaps somebody starts the broker again then."""
        machine = self._any()
        machine.note("disk is full")
        machine.disk.is_full = True

        def room() -> None:
            machine.disk.is_full = False
            if self._world.chance(0.3):
                machine.kill(power_lost=False)

        self._world.after(self._seconds(), room)

    def _damage_a_log(self) -> None:
        """A batch of some log cannot be read any more: the log leaves the ISR and is replaced."""
        machine = self._any()
        store = None if machine.process is None else machine.process.store
        logs = [] if store is None else [one for one in store.logs.values() if one.size_bytes]
        if store is None or not logs:
            return
        log = self._world.random.choice(logs)
        machine.note(f"{log.topic}-{log.tip.partition} is damaged")
        machine.damaged.add(log.tip)
        store.reads.on_damaged(
            log, DamagedBatch(Path("segment"), log.number, log.log_start_offset, "")
        )
