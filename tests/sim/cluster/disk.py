"""A broker's disk: segments and table as the product uses them, what a crash leaves of them.

The log store, its journal and its recovery are the product's; only LMDB is made up. A write is a
transaction: there, or not there. Without fsync (``log.flush=os``) it outlives the process and not
the machine: after a power loss, segments that were never synced are gone (rule 8).
"""

import contextlib
from bisect import insort
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec

from broker.log.group_commit import GroupCommit, InlineCommit, OnDone, OnFault
from broker.log.journal import Journal
from broker.log.options import LogOptions
from broker.log.record_batch import read_header
from broker.log.recovery import recover_logs
from broker.log.segment import StoredBatch, StoredEpoch
from broker.log.store import LogStore, OnFailed, OnFlushed
from broker.log.table import Run, Void
from broker.log.work import PartitionRow, PendingBatch, Truncation, Work
from tests.sim.world import SimulatedCrash, World

if TYPE_CHECKING:
    from tests.sim.cluster.machine import Machine

BOOT_ID = "boot"


class DiskFull(OSError):
    """What a full disk answers."""


class SimulatedSegment:
    """The surface of ``broker.log.segment.Segment``."""

    def __init__(self, disk: "Disk", segment_id: int) -> None:
        self.id = segment_id
        self.path = Path(f"segment-{segment_id}")
        self.live_batches = 0
        self.used_bytes = 0
        self._disk = disk
        self._batches: dict[int, dict[int, bytes]] = {}
        self._epochs: dict[int, dict[int, int]] = {}
        self._recorded_epochs: dict[int, int] = {}

    @property
    def is_empty(self) -> bool:
        return not any(self._batches.values()) and not any(self._epochs.values())

    def append(self, batches: Sequence[PendingBatch]) -> None:
        self._disk.write()
        for batch in batches:
            number = batch.number
            if self._recorded_epochs.get(number) != batch.leader_epoch:
                self._recorded_epochs[number] = batch.leader_epoch
                starts = self._epochs.setdefault(number, {})
                starts[batch.leader_epoch] = batch.epoch_start_offset
            self._batches.setdefault(number, {})[batch.base_offset] = bytes(batch.records)
            self.used_bytes += batch.size

    def delete_from(self, truncations: Sequence[tuple[int, int]]) -> None:
        self._disk.write()
        for number, offset in truncations:
            self._recorded_epochs.pop(number, None)
            held = self._batches.get(number, {})
            for base_offset in [base for base in held if base >= offset]:
                del held[base_offset]
            starts = self._epochs.get(number, {})
            for epoch in [epoch for epoch, start in starts.items() if start >= offset]:
                del starts[epoch]

    def read(self, number: int, wanted: Sequence[tuple[int, int]]) -> list[bytes]:
        return [self._batches[number][base_offset] for base_offset, _ in wanted]

    def scan(self) -> Iterator[StoredBatch]:
        for number, held in sorted(self._batches.items()):
            for base_offset, data in sorted(held.items()):
                yield StoredBatch(number, base_offset, len(data), read_header(data))

    def scan_epochs(self) -> list[StoredEpoch]:
        found = [
            StoredEpoch(number, epoch, start)
            for number, starts in sorted(self._epochs.items())
            for epoch, start in sorted(starts.items())
        ]
        for epoch in found:
            self._recorded_epochs[epoch.number] = epoch.leader_epoch
        return found

    def reopened(self) -> "SimulatedSegment":
        """As another process finds it."""
        self.live_batches = 0
        self._recorded_epochs = {}
        return self

    def sync(self) -> None:
        """The table says what is durable."""

    def close(self) -> None:
        """Its contents stay."""

    def unlink(self) -> None:
        self._disk.segments.pop(self.id, None)


class SimulatedTable:
    """The surface of ``broker.log.table.StoreTable``; every call is a synced transaction."""

    def __init__(self, disk: "Disk") -> None:
        self._disk = disk
        self._rows: dict[int, PartitionRow] = {}
        self._next_number = 0
        self._voids: dict[int, list[Void]] = {}
        self._segments: dict[int, bool] = {}
        self._last_segment_id = 0
        self._high_watermarks: dict[int, int] = {}
        self._run: Run | None = None
        self._loss = False

    def partitions(self) -> list[PartitionRow]:
        return [row for _, row in sorted(self._rows.items())]

    def next_number(self) -> int:
        return self._next_number

    def add_partitions(self, rows: Sequence[PartitionRow]) -> None:
        self._disk.write()
        self._rows.update((row.number, row) for row in rows)
        self._next_number = max(row.number for row in rows) + 1

    def remove_partitions(self, numbers: Iterable[int]) -> None:
        self._disk.write()
        for number in numbers:
            self._rows.pop(number, None)
            self._voids.pop(number, None)

    def voids(self) -> dict[int, list[Void]]:
        return {number: list(voids) for number, voids in self._voids.items() if voids}

    def record_truncations(self, truncations: Sequence[Truncation], sealed_segment_id: int) -> None:
        self._disk.write()
        for truncation in truncations:
            number = truncation.number
            if truncation.lowest_segment_id <= sealed_segment_id:
                insort(
                    self._voids.setdefault(number, []), Void(sealed_segment_id, truncation.offset)
                )
            if truncation.log_start_offset is not None and number in self._rows:
                self._rows[number] = msgspec.structs.replace(
                    self._rows[number], log_start_offset=truncation.log_start_offset
                )

    def drop_voids_before(self, oldest_segment_id: int) -> None:
        for number, voids in self._voids.items():
            self._voids[number] = [v for v in voids if v.through_segment_id >= oldest_segment_id]

    def segments(self) -> dict[int, bool]:
        return dict(sorted(self._segments.items()))

    def last_segment_id(self) -> int:
        return self._last_segment_id

    def record_segments(self, durable_by_id: Mapping[int, bool]) -> None:
        self._disk.write()
        self._segments.update(durable_by_id)
        self._last_segment_id = max(self._last_segment_id, *durable_by_id)

    def forget_segments(self, segment_ids: Iterable[int]) -> None:
        for segment_id in segment_ids:
            self._segments.pop(segment_id, None)

    def high_watermarks(self) -> dict[int, int]:
        return dict(self._high_watermarks)

    def write_high_watermarks(self, offsets: Mapping[int, int]) -> None:
        self._high_watermarks = dict(offsets)

    def record_run(self, run: Run) -> None:
        self._run = run

    def last_run(self) -> Run | None:
        return self._run

    def loss_is_unhandled(self) -> bool:
        return self._loss

    def record_loss(self, *, unhandled: bool) -> None:
        self._loss = unhandled

    def close(self) -> None:
        """Its contents stay."""


class Executor:
    """A housekeeping thread: its work is done at once, or some time later, one after the other."""

    def __init__(self, later: Callable[[Callable[[], None]], None] | None) -> None:
        self._later = later
        self._queue: deque[Callable[[], None]] = deque()

    def submit(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> "Future[Any]":
        done: Future[Any] = Future()

        def perform() -> None:
            done.set_result(work(*args, **kwargs))

        if self._later is None:
            perform()
        else:
            self._queue.append(perform)
            self._later(lambda: self._queue.popleft()())
        return done


class SimulatedHousekeeping:
    """``ahead`` at once, since the journal waits for it; ``behind`` later."""

    def __init__(self, later: Callable[[Callable[[], None]], None]) -> None:
        self.ahead = Executor(None)
        self.behind = Executor(later)

    async def idle(self) -> None:
        """Nothing that a clean end would have to wait for."""

    def shutdown(self) -> None:
        """There are no threads."""


class TimedCommit(GroupCommit):
    """Commits as ``ThreadedCommit`` does: what arrives while one fsync lasts is the next group."""

    def __init__(
        self,
        machine: "Machine",
        journal: Journal,
        group_bytes: int,
        on_done: OnDone,
        on_fault: OnFault,
    ) -> None:
        super().__init__(journal, group_bytes, on_done, on_fault)
        self._machine = machine
        self._process = machine.process
        self._group: list[Work] | None = None
        self._failed = False
        self._idle = self._loop.create_future()
        machine.disk.interrupted = self._interrupted

    def submit(self, work: Work) -> None:
        self._queue.append(work)
        if self._group is None and not self._failed:
            self._begin()

    async def close(self) -> None:
        if self._group is not None and not self._failed:
            self._idle = self._loop.create_future()
            await self._idle

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
            self._failed = True
            self._machine.deliver(self._process, partial(self._on_fault, error))
            return
        if self._queue:
            self._begin()
        elif not self._idle.done():
            self._machine.deliver(self._process, self._now_idle)
        self._machine.deliver(self._process, partial(self._on_done, group, segment))

    def _now_idle(self) -> None:
        if not self._idle.done():
            self._idle.set_result(None)

    def _interrupted(self) -> None:
        """The process ended during a commit: all of it is on disk, or a part, or nothing."""
        if self._group is not None and not self._failed:
            self._journal.perform(self._group)


class Disk:
    """What stays when the process goes."""

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
        self.table = SimulatedTable(self)

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

    def open(self, machine: "Machine", on_flushed: OnFlushed, on_failed: OnFailed) -> LogStore:
        """What ``LogStore.open`` does, on this disk."""
        options = LogOptions(
            flush="os" if self._flush == "os" else "sync", segment_bytes=self._segment_bytes
        )
        table = cast(Any, self.table)
        if self.table.last_run() is None:
            self.table.record_loss(unhandled=True)
        known = self.table.segments()
        self.segments = {one: self.segments[one].reopened() for one in known}
        recovered = recover_logs(
            table, cast(Any, dict(self.segments)), options, BOOT_ID, self._create
        )
        process = machine.process
        commit = InlineCommit if self._flush == "os" else partial(TimedCommit, machine)

        def later(perform: Callable[[], None]) -> None:
            self._world.after(
                self._world.between(0.001, 0.3), lambda: machine.deliver(process, perform)
            )

        return LogStore(
            Path("/log"),
            options,
            on_flushed,
            on_failed,
            cast(Any, SimulatedHousekeeping(later)),
            recovered,
            self._create,
            commit,
        )

    def _create(self, segment_id: int) -> Any:
        segment = self.segments[segment_id] = SimulatedSegment(self, segment_id)
        self.table.record_segments({segment_id: self._flush == "sync"})
        return segment
