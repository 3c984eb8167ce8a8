"""A broker's disk: segments and table as the product uses them, what a crash leaves of them.

The log store, its journal and its recovery are the product's; only LMDB is made up. A write is a
transaction: there, or not there. Without fsync (``log.flush=os``) it outlives the process and not
the machine: after a power loss, segments that were never synced are gone (rule 8).
"""

import contextlib
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from quorate.broker.log.log_manager import LogCallbacks, LogManager
from quorate.broker.log.options import LogOptions
from quorate.broker.log.recovery.recovery import recover_logs
from quorate.broker.log.writing.disk_space import DiskReserve
from quorate.broker.log.writing.group_commit import CommitCallbacks, GroupCommit, InlineCommit
from quorate.broker.log.writing.journal import Journal
from quorate.broker.log.writing.write_operations import WriteOperation
from quorate.common.types import TopicIdPartition
from tests.sim.cluster.disk_files import SimulatedSegment, SimulatedTable
from tests.sim.world import SimulatedCrash, World

if TYPE_CHECKING:
    from tests.sim.cluster.machine import Machine

BOOT_ID = "boot"


class DiskFull(OSError):
    """The error that a full disk raises."""


class SimulatedReserve:
    """There is room, or there is none: what it would be kept for finds none either."""

    regained_bytes = 1

    def __init__(self, disk: "Disk") -> None:
        self._disk = disk

    @property
    def is_held(self) -> bool:
        return not self._disk.is_full

    def regain(self) -> bool:
        return self.is_held

    def release(self) -> None:
        """Nothing to give back."""

    def explains(self, error: BaseException) -> bool:
        return isinstance(error, DiskFull)

    def free_bytes(self) -> int:
        return int(self.is_held)


class Executor:
    """A housekeeping thread: its work is done at once, or some time later, one after the other."""

    def __init__(self, later: Callable[[Callable[[], None]], None] | None) -> None:
        self._later = later
        self._queue: deque[Callable[[], None]] = deque()

    def submit(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> "Future[Any]":
        done: Future[Any] = Future()

        def perform() -> None:
            if done.set_running_or_notify_cancel():
                done.set_result(work(*args, **kwargs))

        if self._later is None:
            perform()
        else:
            self._queue.append(perform)
            self._later(lambda: self._queue.popleft()())
        return done


class SimulatedHousekeeping:
    """``ahead`` at once, since the journal waits for it; the others later."""

    def __init__(self, later: Callable[[Callable[[], None]], None]) -> None:
        self.ahead = Executor(None)
        self.behind, self.reading = Executor(later), Executor(later)
        self.unlinking = Executor(later)

    async def idle(self) -> None:
        """Nothing that a clean end would have to wait for."""

    def shutdown(self) -> None:
        """There are no threads."""


class TimedCommit(GroupCommit):
    """Commits as a ``SyncedCommit`` does in its thread: what comes meanwhile is the next group."""

    def __init__(
        self,
        machine: "Machine",
        journal: Journal,
        group_bytes: int,
        reserve: DiskReserve,
        callbacks: CommitCallbacks,
    ) -> None:
        super().__init__(journal, group_bytes, reserve, callbacks)
        self._machine = machine
        self._process = machine.process
        self._group: list[WriteOperation] | None = None
        self._failed = False
        self._is_closed = False
        self._idle = self._loop.create_future()
        machine.disk.interrupted = self._interrupted
        if self._is_stalled:
            self._retry_later()

    def submit(self, work: WriteOperation) -> None:
        self._queue.append(work)
        if self._group is None and not (self._failed or self._is_stalled or self._is_closed):
            self._begin()

    async def close(self) -> None:
        while self._group is not None and not self._failed:
            self._idle = self._loop.create_future()
            await self._idle
        self._is_closed = True

    def _tell(self, callback: Callable[..., None], *about: Any) -> None:
        self._machine.deliver(self._process, partial(callback, *about))

    def _begin(self) -> None:
        self._group = self._take_group()
        world, disk = self._machine.world, self._machine.disk
        world.after(disk.latency_s * world.between(0.5, 2.0), self._committed)

    def _committed(self) -> None:
        if self._process is not self._machine.process or self._group is None:
            return
        group, self._group = self._group, None
        try:
            segment = self._journal.perform(group)
        except OSError as error:
            self._failed = not self._stall(group, error)
            self._retry_later()
            if not self._idle.done():
                self._tell(self._now_idle)
            return
        if self._queue:
            self._begin()
        self._tell(self._callbacks.done, group, segment)
        self._rest()

    def _go_on(self) -> None:
        if self._queue:
            self._begin()
        self._rest()

    def _rest(self) -> None:
        """Wake the task that closes the store, once all is done and the process has heard of it."""
        if self._group is None and not self._idle.done():
            self._tell(self._now_idle)

    def _retry_later(self) -> None:
        self._machine.world.after(self._retry_s, self._retry)

    def _retry(self) -> None:
        if self._process is not self._machine.process or self._failed or self._is_closed:
            return
        self._failed = not self._look_for_room()
        if self._is_stalled:
            self._retry_later()
        else:
            self._go_on()

    def _now_idle(self) -> None:
        if not self._idle.done():
            self._idle.set_result(None)

    def _interrupted(self) -> None:
        """The process ended during a commit: all of it is on disk, or a part, or nothing."""
        if self._group is not None and not self._failed:
            self._journal.perform(self._group)


class FolderCopy(NamedTuple):
    """A copy of what a folder once held. It can be put back once."""

    segments: dict[int, SimulatedSegment]
    table: SimulatedTable
    mistaken: frozenset[TopicIdPartition]


class Disk:
    """The disk of a machine. It stays when the process goes."""

    def __init__(self, world: World, *, flush: str, segment_bytes: int) -> None:
        self.latency_s = 0.001
        self.is_full = False
        self.replaced = 0
        self.interrupted: Callable[[], None] = lambda: None
        self._world = world
        self._flush = flush
        self._segment_bytes = segment_bytes
        self._writes_left: int | None = None
        self.replace()

    def replace(self) -> None:
        """An empty disk in place of the old one."""
        self.segments: dict[int, SimulatedSegment] = {}
        self.table = SimulatedTable(self.write)
        self.mistaken: frozenset[TopicIdPartition] = frozenset()
        """The partitions that rows were damaged to name: their topic ids were never given to any
        topic."""

    def copy(self) -> "FolderCopy":
        """The folder as it is now."""
        segments = {one: segment.copied() for one, segment in self.segments.items()}
        return FolderCopy(segments, self.table.copied(), self.mistaken)

    def put_back(self, copy: "FolderCopy") -> None:
        """An old copy in place of the folder, as a restored backup or a disk that forgot."""
        self.segments, self.table, self.mistaken = copy

    def write(self) -> None:
        """Something is about to be written."""
        if self.is_full:
            raise DiskFull("no space left on device")
        if self._writes_left is not None:
            self._writes_left -= 1
            if self._writes_left < 0:
                raise SimulatedCrash

    def crash(self, *, power_lost: bool) -> None:
        """The process ended; with the machine, what was never synced is gone."""
        interrupted, self.interrupted = self.interrupted, lambda: None
        self._writes_left = self._world.random.choice([0, 0, 1, 2, 3])
        with contextlib.suppress(SimulatedCrash, OSError):
            interrupted()
        self._writes_left = None
        if power_lost:
            lost = [one for one, durable in self.table.segments().items() if not durable]
            if lost:
                self.table.record_loss(unhandled=True)
            for segment_id in lost:
                self.segments.pop(segment_id, None)
            self.table.forget_segments(lost)

    def open(
        self, machine: "Machine", callbacks: LogCallbacks, incarnation_id: bytes
    ) -> LogManager:
        """Open the logs on this disk, as ``LogManager.open`` does."""
        options = LogOptions(
            flush="os" if self._flush == "os" else "sync",
            segment_bytes=self._segment_bytes,
            incarnation_id=incarnation_id,
        )
        table = cast(Any, self.table)
        if self.table.last_run() is None:
            self.table.record_loss(unhandled=True)
        known = self.table.segments()
        self.segments = {one: self.segments[one].reopened() for one in known}
        recovered = recover_logs(
            table, cast(Any, dict(self.segments)), options, BOOT_ID, 0, self._create
        )
        process = machine.process
        commit = InlineCommit if self._flush == "os" else partial(TimedCommit, machine)

        def later(perform: Callable[[], None]) -> None:
            self._world.after(
                self._world.between(0.001, 0.3), lambda: machine.deliver(process, perform)
            )

        return LogManager(
            Path("/log"),
            options,
            callbacks,
            cast(Any, SimulatedHousekeeping(later)),
            recovered,
            self._create,
            cast(Any, SimulatedReserve(self)),
            commit,
        )

    def _create(self, segment_id: int) -> Any:
        segment = SimulatedSegment(segment_id, self.write, self._unlinked)
        segment.begin_writing(self._flush)
        self.segments[segment_id] = segment
        self.table.record_segments({segment_id: self._flush == "sync"})
        return segment

    def _unlinked(self, segment_id: int) -> None:
        self.segments.pop(segment_id, None)
