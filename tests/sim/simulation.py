"""One run: a quorum, its clients and watchers, so many faults, then peace, and it must be well."""

import logging
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any, Final, NamedTuple

from quorate.quorum.quorum_config import QuorumConfig, quorum_config
from quorate.quorum.raft.raft_options import RaftOptions
from tests.sim.checkers import SafetyChecker
from tests.sim.clients import Client
from tests.sim.disruption import DisruptionChecker
from tests.sim.faults import Faults
from tests.sim.globals import simulated
from tests.sim.history import History
from tests.sim.host import Host
from tests.sim.mutants import Mutant
from tests.sim.network import Conditions, Network
from tests.sim.service import Services
from tests.sim.watcher import Watcher
from tests.sim.world import Violation, World

STEPS: Final = 25
"""Faults per run."""

BEGINS_WITHIN_S: Final = 10.0
"""Mostly nothing goes wrong before: the first start of a quorum needs every voter."""

LEADER_WITHIN_S: Final = 12.0
"""The time after everything is healed for broken connections to be noticed, an election, a
commit."""

AGREE_WITHIN_S: Final = 20.0


class Outcome(NamedTuple):
    """The outcome of a run."""

    seed: int
    violation: str | None
    trace_digest: str
    last_lines: list[str]
    events: int
    writes: int
    effects: int
    """Writes that changed something."""
    reads: int
    committed: int
    terms: int
    virtual_s: float


class Simulation:
    """Everything of one run."""

    def __init__(self, seed: int, steps: int, echo: Callable[[str], None] | None = None) -> None:
        self.world = World(seed, echo=echo)
        self.seed = seed
        self._steps = steps
        self.safety = self._checker()
        self.hosts: dict[int, Host] = {}
        self.history = History(self.safety.record)

    def _checker(self) -> SafetyChecker:
        return SafetyChecker(self.world)

    def run(self) -> None:
        """Raises ``Violation`` if anything is ever wrong."""
        self._set_up()
        world = self.world
        if self._calm_start and not world.run_until(BEGINS_WITHIN_S, self._leads):
            raise Violation(f"no leader within {BEGINS_WITHIN_S} s of the first start")
        for _ in range(self._steps):
            world.run_until(world.now + world.random.expovariate(1 / self._calm_s))
            self.faults.one()
            world.run_until(world.now + self.faults.calm_s)
        world.run_until(world.now + 0.3)
        self._end_well()

    def _set_up(self) -> None:
        world, draw = self.world, self.world.random
        voters = draw.choice([3, 3, 3, 3, 3, 3, 5, 5, 2, 1])
        wild = draw.random() < 0.3
        conditions = Conditions(
            delay_s=draw.choice([0.0001, 0.0005, 0.003]),
            loss=draw.choice([0.005, 0.03]) if wild else 0.0,
            doubled=draw.choice([0.0, 0.1, 0.3]) if wild else 0.0,
            overtaken=draw.choice([0.0, 0.03, 0.1]) if wild else 0.0,
        )
        entries = draw.choice([8, 25, 100])
        options = RaftOptions(
            snapshot_max_entries=entries,
            snapshot_max_bytes=draw.choice([1_000, 64 << 20]),
            retained_entries=draw.choice([1, 5, entries]),
            apply_pause_s=(0.0, 0.005, 0.05)[self.seed % 3],
        )
        batch_bytes = draw.choice([600, 3_000, 8 << 20])
        self._calm_start = draw.random() < 0.8
        self._calm_s = draw.choice([0.2, 0.5, 1.0])
        self.network = Network(world, conditions)
        world.note(f"seed {self.seed}: {voters} voters, {conditions}, {options}")
        for config in self._configs(voters):
            host = Host(world, self.network, config, options, self.safety)
            host.batch_bytes = batch_bytes
            host.pace = world.between(0.97, 1.03)
            host.disk.latency_s = draw.choice([0.00005, 0.0005, 0.003])
            self.hosts[host.voter_id] = host
            self.safety.watch(host)
        self.services = services = Services(world, self.hosts)
        services.loss = draw.choice([0.0, 0.0, 0.02, 0.1])
        clients = draw.choice([1, 2, 4])
        pace_s = draw.choice([0.01, 0.03, 0.1])
        self.clients = [
            Client(number, world, services, self.history, pace_s) for number in range(clients)
        ]
        self.watchers = [
            Watcher(number, world, services, self.safety) for number in range(draw.choice([1, 2]))
        ]
        self.faults = Faults(world, self.network, services, self.hosts, self.clients)
        self.disruption = DisruptionChecker(
            world, self.hosts, self.faults.health, self.network, self.safety
        )
        self.safety.elections.on_leader = self.disruption.new_leader
        for host in self.hosts.values():
            host.on_down = self._on_down(host)
        late = (
            draw.choice(list(self.hosts.values())) if voters > 2 and draw.random() < 0.2 else None
        )
        for host in self.hosts.values():
            world.at(draw.uniform(0.5, 3) if host is late else draw.uniform(0, 0.2), host.boot)

    def _configs(self, voters: int) -> list[QuorumConfig]:
        """Return the configurations of all hosts."""
        return [config_of(n, range(1, voters + 1)) for n in range(1, voters + 1)]

    def _on_down(self, host: Host) -> Callable[[], None]:
        return lambda: self.faults.went_down(host)

    def abandon(self) -> None:
        """Nothing runs any more."""
        for host in self.hosts.values():
            if host.process is not None:
                host.process.loop.abandon()

    # -- the end ---------------------------------------------------------------------------------

    def _end_well(self) -> None:
        world = self.world
        self.safety.nothing_is_lost()
        world.note("everything is healed")
        self.faults.heal_everything()
        committed = self.safety.record.last_index
        probes = self.history.effects
        if not world.run_until(
            world.now + LEADER_WITHIN_S,
            lambda: (
                self._leads()
                and self.history.effects > probes
                and self.safety.record.last_index > committed
            ),
        ):
            raise Violation(
                f"nothing was committed within {LEADER_WITHIN_S} s after everything was healed "
                f"(leader: {self._leads()})"
            )
        for client in self.clients:
            client.is_stopping = True
        if not world.run_until(world.now + AGREE_WITHIN_S, self._is_quiet):
            raise Violation(f"{self._what_is_missing()} {AGREE_WITHIN_S} s after all was healed")
        self.safety.all_agree()
        self.safety.nothing_is_lost()

    def _leads(self) -> bool:
        return any(
            host.process is not None and host.process.node.leads_caught_up
            for host in self.hosts.values()
        )

    def _counts(self, _host: Host) -> bool:
        """Whether it must have everything in the end."""
        return True

    def _is_quiet(self) -> bool:
        last = self.safety.record.last_index
        return (
            all(client.is_idle for client in self.clients)
            and all(watcher.has_seen_all for watcher in self.watchers)
            and all(
                host.process is not None and host.process.node.last_applied == last
                for host in self.hosts.values()
                if self._counts(host)
            )
        )

    def _what_is_missing(self) -> str:
        last = self.safety.record.last_index
        lagging = [
            f"voter {v} is at {h.process.node.last_applied if h.process else None} of {last}"
            for v, h in self.hosts.items()
            if self._counts(h) and (h.process is None or h.process.node.last_applied != last)
        ]
        waiting = [f"client {c.number} waits" for c in self.clients if not c.is_idle]
        blind = [f"watcher {w.number} lacks events" for w in self.watchers if not w.has_seen_all]
        return "; ".join(lagging + waiting + blind)


def simulate(
    seed: int,
    *,
    steps: int = STEPS,
    mutant: Mutant | None = None,
    echo: Callable[[str], None] | None = None,
    kind: type[Simulation] = Simulation,
) -> Outcome:
    """Run one seed, with one guard of the product taken out if a mutant is given."""
    simulation = kind(seed, steps, echo)
    violation = None
    with ExitStack() as stack:
        stack.enter_context(simulated(simulation.world))
        if mutant is not None:
            stack.enter_context(mutant.applied())
        stack.callback(logging.disable, logging.root.manager.disable)
        logging.disable(logging.CRITICAL)
        try:
            simulation.run()
        except Violation as found:
            violation = str(found)
            simulation.world.note(f"VIOLATION: {found}")
        finally:
            simulation.abandon()
    world = simulation.world
    return Outcome(
        seed,
        violation,
        world.trace_digest,
        world.last_lines(60),
        world.events,
        simulation.history.writes,
        simulation.history.effects,
        simulation.history.reads,
        simulation.safety.record.last_index,
        max(simulation.safety.elections.leaders, default=0),
        world.now,
    )


def config_of(voter_id: int, voters: Iterable[int]) -> QuorumConfig:
    """Return the configuration of one host; ``voters`` are those it knows."""
    names = ",".join(f"{n}@127.0.0.1:{7000 + n}/{7100 + n}" for n in voters)
    values: dict[str, Any] = {
        "cluster.id": "simulated",
        "data.dir": "/data",
        "security.protocol": "PLAINTEXT",
        "quorum.voters": names,
        "session.timeout.min.ms": 1_000,
    }
    return quorum_config({**values, "node.id": voter_id})
