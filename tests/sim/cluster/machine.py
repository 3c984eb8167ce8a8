"""One broker's machine: its disk, clock and links, and when its process runs, stops and ends."""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from quorate.common.types import TopicIdPartition
from tests.sim.cluster.disk import Disk
from tests.sim.cluster.rpc import Rpc
from tests.sim.loop import SimulatedLoop
from tests.sim.network import Link, Network
from tests.sim.world import Violation, World

if TYPE_CHECKING:
    from tests.sim.cluster.process import Process


MOST_CLOSES: Final = 100


class ProcessLoop(SimulatedLoop):
    """Ends as a process does: at once, and nothing cleans up after itself.

    Coroutines clean up when Python frees them, so they are kept until the run is over.
    """

    _ended: tuple[asyncio.Task[Any], ...] = ()

    def abandon(self) -> None:
        self.is_dead = True
        self._ended = tuple(asyncio.all_tasks(self))
        for task in self._ended:
            task._log_destroy_pending = False  # type: ignore[attr-defined]

    def bury(self) -> None:
        """The run is over: let the coroutines go, whatever they still want to do."""
        ended, self._ended = self._ended, ()
        for task in ended:
            coroutine = task.get_coro()
            for _ in range(MOST_CLOSES):
                try:
                    coroutine.close()
                except Exception:  # noqa: BLE001 - it wants to go on, and cannot
                    continue
                break


class MachineLoop(ProcessLoop):
    """An event loop whose executors are the world: no thread ever runs."""

    def __init__(self, machine: "Machine") -> None:
        super().__init__(machine.clock_s, lambda: None)
        self._machine = machine

    def run_in_executor(  # type: ignore[override]
        self, executor: object, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """``func`` some time later, as on another thread."""
        future = self.create_future()
        machine, process = self._machine, self._machine.process

        def done() -> None:
            if not future.done():
                future.set_result(func(*args))

        machine.world.after(
            machine.world.between(0.0001, 0.003), lambda: machine.deliver(process, done)
        )
        return future


class Runs(Protocol):
    """The parts of a process that a host needs."""

    @property
    def loop(self) -> ProcessLoop: ...
    @property
    def rpc(self) -> Rpc: ...
    @property
    def listens(self) -> bool: ...


P = TypeVar("P", bound=Runs)


class Host(Generic[P]):
    """Runs one event loop after the other: a process at a time."""

    def __init__(self, world: World, network: Network, host_id: int) -> None:
        self.world = world
        self.network = network
        self.voter_id = host_id
        """The network's name for it."""
        self.process: P | None = None
        self.paused_until = 0.0
        self.pace = 1.0
        self._offset_s = 1_000.0 * host_id
        self._waiting: deque[Callable[[], None]] = deque()
        self._wakes_at: float | None = None
        self._ended: list[ProcessLoop] = []
        self.after_run: Callable[[], None] = lambda: None
        network.endpoints[host_id] = self

    @property
    def listens(self) -> bool:
        return self.process is not None and self.process.listens

    def note(self, line: str) -> None:
        self.world.note(f"{self.voter_id} {line}")

    def clock_s(self) -> float:
        return self._offset_s + self.world.now * self.pace

    # -- what comes from outside -----------------------------------------------------------------

    def arrived(self, link: Link, frame: bytes | None) -> None:
        process = self.process
        if process is not None:
            self.deliver(process, partial(process.rpc.arrived, link, frame))

    def deliver(self, process: P | None, action: Callable[[], None]) -> None:
        """Run ``action`` inside the process, now or when it is no longer stopped."""
        if process is None or process is not self.process:
            return
        if self.world.now < self.paused_until or self._waiting:
            self._waiting.append(action)
            self._wake_at(self.paused_until)
            return
        self._run(process, action)

    def pause(self, seconds: float) -> None:
        """Pause as SIGSTOP does: nothing runs, the kernel goes on."""
        self.paused_until = max(self.paused_until, self.world.now + seconds)
        self._wake_at(self.paused_until)

    # -- running ---------------------------------------------------------------------------------

    def _run(self, process: P, action: Callable[[], None] | None) -> None:
        loop = process.loop
        if action is not None:
            with loop.running():
                action()
        if process is not self.process:
            return
        loop.run_what_is_due()
        if loop.failures:
            raise Violation(f"process {self.voter_id}: {loop.failures[0]}")
        self.end_of_run()
        if process is self.process:
            timer = loop.next_timer()
            if timer is not None:
                self._wake_at((timer - self._offset_s) / self.pace + 1e-6)

    def _wake_at(self, at: float) -> None:
        at = max(at, self.world.now)
        if self._wakes_at is None or at < self._wakes_at - 1e-9:
            self._wakes_at = at
            self.world.at(at, partial(self._wake, at))

    def _wake(self, at: float) -> None:
        if self._wakes_at != at:
            return
        self._wakes_at = None
        process = self.process
        if process is None:
            return
        if self.world.now < self.paused_until:
            self._wake_at(self.paused_until)
            return
        while self._waiting and process is self.process:
            action = self._waiting.popleft()
            with process.loop.running():
                action()
        if process is self.process:
            self._run(process, None)

    def has_effect(self) -> bool:
        """Whether something that is about to leave the process does so."""
        return True

    def end_of_run(self) -> None:
        """The process has come to rest."""
        self.after_run()

    def begin(self, process: P) -> None:
        """The host runs this process from now on."""
        self._waiting.clear()
        self._wakes_at = None
        self.paused_until = self.world.now
        self.process = process

    def end(self, *, power_lost: bool = False) -> None:
        """The process is gone; a killed one's connections are closed by its kernel."""
        process, self.process = self.process, None
        assert process is not None
        process.loop.abandon()
        self._ended.append(process.loop)
        self._waiting.clear()
        if power_lost:
            self.network.vanish(self.voter_id)
        else:
            for link in self.network.links_of(self.voter_id):
                self.network.close(link, self.voter_id)

    def bury(self) -> None:
        """The run is over."""
        if self.process is not None:
            self.end()
        for loop in self._ended:
            loop.bury()
        self._ended.clear()


class Machine(Host["Process"]):
    """A broker's: its disk stays when the process goes."""

    def __init__(
        self,
        world: World,
        network: Network,
        broker_id: int,
        disk: Disk,
        start: Callable[["Machine"], "Process"],
    ) -> None:
        super().__init__(world, network, broker_id)
        self.disk = disk
        self.boots = 0
        self.is_old = False
        """It runs old software, and may be refused by a cluster that has been upgraded (B4)."""
        self.damaged: set[TopicIdPartition] = set()
        """Partitions whose log had damage here: it is dropped and fetched again."""
        self._effects_left: int | None = None
        self._loses_power = False
        self._start = start
        self.before_down: Callable[[], None] = lambda: None
        self.on_down: Callable[[], None] = lambda: None

    def boot(self) -> None:
        """Start the process on what the disk has."""
        if self.process is not None:
            return
        self.boots += 1
        self.note(f"boots, time {self.boots}")
        process = self._start(self)
        self.begin(process)
        self.deliver(process, process.start)

    def crash_after(self, effects: int, *, power_lost: bool) -> None:
        """End the process after so many more messages: what it does from then on has no effect."""
        self._effects_left = effects
        self._loses_power = power_lost

    def spare(self) -> None:
        """No crash is under way any more."""
        self._effects_left = None

    def has_effect(self) -> bool:
        """Whether something that is about to leave the process does so."""
        if self._effects_left is None:
            return True
        self._effects_left -= 1
        return self._effects_left >= 0

    def end_of_run(self) -> None:
        """The process has come to rest; it ends here if it had to in between."""
        self.after_run()
        if self._effects_left is not None and self._effects_left < 0:
            self.kill(power_lost=self._loses_power)

    def kill(self, *, power_lost: bool) -> None:
        """End the process, in the middle of whatever the disk is doing."""
        if self.process is None:
            return
        self._effects_left = None
        self.note("loses power" if power_lost else "is killed")
        self.before_down()
        process = self.process
        self.end(power_lost=power_lost)
        self.disk.crash(power_lost=power_lost)
        process.quorum.died(power_lost=power_lost)
        self.on_down()

    def exited(self, why: str) -> None:
        """The process ended by itself."""
        if self.process is not None:
            self.note(f"exits: {why}")
            self.before_down()
            process = self.process
            self.end()
            self.disk.crash(power_lost=False)
            process.quorum.died(power_lost=False)
            self.on_down()


def raise_failure(task: "asyncio.Task[None]") -> None:
    """End the run with the error of a task that nobody waits for."""
    if not task.cancelled() and (error := task.exception()) is not None:
        raise error
