"""One run: a cluster, its clients and operator, so many faults, then peace, and it must be well."""

import gc
import logging
import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from random import Random
from typing import Any, Final, NamedTuple
from unittest.mock import patch

from quorate.broker.control.broker_registrar import RegistrationRefused
from tests.sim.cluster.checkers import Checker
from tests.sim.cluster.clients import Clients
from tests.sim.cluster.disk import Disk, DiskFull
from tests.sim.cluster.end import End
from tests.sim.cluster.faults import Faults
from tests.sim.cluster.machine import Machine
from tests.sim.cluster.operator import Operator
from tests.sim.cluster.process import Process, simulated_config
from tests.sim.cluster.quorum import SimulatedQuorum
from tests.sim.mutants import Mutant
from tests.sim.network import Conditions, Network
from tests.sim.world import Violation, World

STEPS: Final = 30
"""Faults per run."""

EVENTS_LEAST: Final = 2_000
"""A run in which less happened goes on, to up to four times as many faults."""


TRANSACTIONAL_SHARE: Final = 0.2
"""The share of runs with transactions. The seed alone decides which runs, and nothing else of a run
depends on that choice."""


class Outcome(NamedTuple):
    """The outcome of a run."""

    seed: int
    violation: str | None
    trace_digest: str
    last_lines: list[str]
    events: int
    acknowledged: int
    consumed: int
    leaderships: int
    transactions: int
    ended: int
    """Transactions of producers; ``transactions`` are those of the quorum."""
    virtual_s: float
    assignments: int
    """Partitions that members of a group were given."""
    commits: int


class Simulation:
    """Everything of one run."""

    def __init__(self, seed: int, steps: int, echo: Callable[[str], None] | None = None) -> None:
        self.seed = seed
        self.world = world = World(seed, echo=echo)
        self._steps = steps
        draw = world.random
        self.network = Network(world, Conditions(draw.choice([0.0002, 0.001, 0.005]), 0, 0, 0))
        self.quorum = SimulatedQuorum(world)
        self.quorum.delay_s = draw.choice([0.0005, 0.003])
        self.quorum.lost = draw.choice([0.0, 0.0, 0.01, 0.05])
        self.machines: dict[int, Machine] = {}
        self._brokers = draw.choice([3, 3, 3, 3, 4, 5, 1])
        self._flush = draw.choice(["sync", "sync", "os"])
        self._session_ms = draw.choice([600, 1_500, 3_000])
        self._patience = draw.choice([1.0, 0.1])
        self._config: dict[str, Any] = {
            "broker.session.timeout.ms": self._session_ms,
            "replica.lag.time.max.ms": draw.choice([300, 1_000, 5_000, 30_000]),
            "replica.fetch.wait.max.ms": draw.choice([100, 500]),
            "replica.fetch.response.max.bytes": draw.choice([1_024, 2 << 20]),
            "controller.socket.timeout.ms": draw.choice([500, 2_000]),
            "quorum.connect.timeout.ms": draw.choice([1_000, 60_000]),
            "controlled.shutdown.timeout.ms": 2_000,
            "log.flush": self._flush,
            "min.insync.replicas": draw.choice([1, 1, 2]),
            "log.retention.check.interval.ms": draw.choice([300, 2_000]),
            "log.retention.ms": -1,
        }
        segment_bytes = draw.choice([600, 4_000, 1 << 20])
        old_software = draw.random() < 0.3
        self.checker = Checker(world, self.machines)
        self.quorum.on_applied = self.checker.metadata.applied
        world.note(f"seed {seed}: {self._brokers} brokers, {self._config}")
        for broker_id in range(1, self._brokers + 1):
            disk = Disk(world, flush=self._flush, segment_bytes=segment_bytes)
            disk.latency_s = draw.choice([0.0002, 0.002, 0.01])
            machine = Machine(world, self.network, broker_id, disk, self._start)
            machine.is_old = old_software
            machine.pace = world.between(0.98, 1.02)
            machine.after_run = self._after_run(machine)
            self.machines[broker_id] = machine
        self.clients = Clients(world, self.network, self.machines, self.checker)
        self.operator = Operator(self.clients, self.quorum)
        self._has_transactions = Random(f"transactions {seed}").random() < TRANSACTIONAL_SHARE
        self.faults = Faults(
            world,
            self.network,
            self.quorum,
            self.machines,
            self.operator,
            session_s=self._session_ms / 1_000,
        )
        for machine in self.machines.values():
            machine.on_down = self._on_down(machine)
            machine.before_down = partial(self.checker.copies.goes_down, machine)

    def run(self) -> None:
        """All of it; raises ``Violation``."""
        world, draw = self.world, self.world.random
        for machine in self.machines.values():
            world.at(draw.uniform(0, 0.3), machine.boot)
        world.run_until(1.5)
        self.start_clients()
        world.run_until(world.now + 1.0)
        for step in range(4 * self._steps):
            if step >= self._steps and world.events >= EVENTS_LEAST:
                break
            self.faults.one()
            world.run_until(world.now + draw.choice([0.05, 0.5, 1.5]) * draw.random())
        world.note("everything is healed")
        self.faults.heal_everything()
        self.end().come()

    @property
    def group_counts(self) -> tuple[int, int]:
        """The numbers of assignments and of commits in the group of this run, if it has one."""
        return 0, 0

    def start_clients(self) -> None:
        """Create the first topics, and start who uses them."""
        draw = self.world.random
        for _ in range(draw.choice([1, 2, 3])):
            self.operator.create()
        pace_s = draw.choice([0.02, 0.05, 0.2])
        self.clients.start(draw.choice([1, 2, 3]), draw.choice([1, 2]), pace_s)
        if self._has_transactions:
            self._start_transactions(pace_s)

    def end(self) -> End:
        """Return the end of the run, with everything that must have come to rest by then."""
        return End(
            self.world, self.quorum, self.machines, self.clients, self.operator, self.checker
        )

    def _start_transactions(self, pace_s: float) -> None:
        self.checker.looks_at_transactions = True
        self.clients.start_transactions(self.quorum, pace_s)
        for machine in self.machines.values():
            if machine.process is not None:
                self._verify_transactions(machine.process)

    def _verify_transactions(self, process: Process) -> None:
        coordinator = self.clients.coordinator
        if coordinator is not None:
            process.verify(coordinator)

    def abandon(self) -> None:
        """Nothing runs any more; who wanted to clean up after itself is not heard."""
        before, sys.unraisablehook = sys.unraisablehook, lambda _: None
        for machine in self.machines.values():
            machine.bury()
        self.clients.host.bury()
        sys.unraisablehook = before

    def _start(self, machine: Machine) -> Process:
        process = Process(
            machine,
            self.quorum,
            simulated_config(machine.voter_id, {**self._config, **self._software(machine)}),
            session_timeout_ms=self._session_ms,
            patience=self._patience,
        )
        self._verify_transactions(process)
        self.checker.watch_drops(machine, process)
        process.rpc.mischief = self.faults.mischief
        process.rpc.on_call = lambda _to, method, body: self.checker.called(
            machine.voter_id, method, body
        )
        return process

    def _software(self, machine: Machine) -> dict[str, Any]:
        """A rolling upgrade: what is started again may be newer than it was (B4)."""
        if machine.is_old and machine.boots > 1:
            machine.is_old = not self.faults.is_over and self.world.chance(0.5)
        return {"inter.broker.protocol.version": 1} if machine.is_old else {}

    def _after_run(self, machine: Machine) -> Callable[[], None]:
        return lambda: self.checker.after(machine)

    def _on_down(self, machine: Machine) -> Callable[[], None]:
        return lambda: self.faults.went_down(machine)


EXPECTED: Final = (DiskFull, RegistrationRefused)
"""The errors that simulated machines and operators bring about themselves."""


class _Faults(logging.Handler):
    """The product caught an exception that it did not expect: it logs those with their trace."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: str | None = None

    def emit(self, record: logging.LogRecord) -> None:
        if not record.exc_info or isinstance(record.exc_info[1], EXPECTED):
            return
        if self.found is None:
            formatter = logging.Formatter()
            self.found = f"{record.getMessage()}\n{formatter.formatException(record.exc_info)}"


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
    world = simulation.world
    violation = None
    faults = _Faults()
    with ExitStack() as stack:
        stack.callback(gc.enable)
        gc.disable()  # When a cycle is freed depends on what ran before in this process.
        stack.enter_context(
            patch(
                "quorate.broker.metadata.metadata_follower.apply_run",
                simulation.quorum.applied_again,
            )
        )
        if mutant is not None:
            stack.enter_context(mutant.applied())
        stack.callback(logging.disable, logging.root.manager.disable)
        logging.disable(logging.WARNING)
        logger = logging.getLogger("quorate.broker")
        stack.callback(logger.removeHandler, faults)
        logger.addHandler(faults)
        stack.callback(setattr, logger, "propagate", logger.propagate)
        logger.propagate = False
        try:
            simulation.run()
            if faults.found is not None:
                raise Violation(f"the product met what it does not expect: {faults.found}")
        except Violation as found:
            violation = str(found)
            world.note(f"VIOLATION: {found}")
        finally:
            logging.disable(logging.CRITICAL)
            simulation.abandon()
    gc.collect()
    checker = simulation.checker
    return Outcome(
        seed,
        violation,
        world.trace_digest,
        world.last_lines(80),
        world.events,
        checker.acknowledged,
        checker.consumed,
        checker.leaderships,
        len(simulation.quorum.log),
        0 if simulation.clients.coordinator is None else simulation.clients.coordinator.completed,
        world.now,
        *simulation.group_counts,
    )
