"""A watcher: follows the log through whichever voters it takes, and misses and repeats nothing."""

import asyncio
from functools import partial
from typing import Any

from quorate.common.types import MetadataOffset
from quorate.metadata_log.snapshot.snapshot import decode_snapshot
from quorate.quorum.voter.watch_stream import VoterCutOff, watch
from quorate_proto.v1 import quorum_pb2 as pb
from tests.sim.checkers import SafetyChecker
from tests.sim.process import Process
from tests.sim.service import CLIENT, Services
from tests.sim.world import Violation, World

SILENCE_S = 1.0


class Watcher:
    """One watch at a time; when it ends or falls silent, another one goes on."""

    def __init__(
        self, number: int, world: World, services: Services, safety: SafetyChecker
    ) -> None:
        self.number = number
        self._world = world
        self._services = services
        self._safety = safety
        self._epoch = 0
        self._delivered = 0
        """Everything up to here was seen."""
        self._chunks: list[bytes] = []
        self._task: asyncio.Task[None] | None = None
        self._at: Process | None = None
        self._heard = 0.0
        self._arrives_after = 0.0
        self.snapshots = 0
        self.seen = 0
        world.after(world.between(0.0, 2.0), self._connect)

    @property
    def has_seen_all(self) -> bool:
        return not self._safety.record.transactions(self._delivered, self._safety.record.last_index)

    def _connect(self) -> None:
        self._epoch += 1
        self._leave()
        self._chunks = []
        self._heard = self._world.now
        voter_id = self._world.random.choice(self._services.known())
        process = self._services.hosts[voter_id].process
        if process is not None and not self._services.is_cut(CLIENT, voter_id):
            self._at = process
            start, epoch = MetadataOffset(self._delivered + 1), self._epoch
            if self._world.chance(0.05):
                start = MetadataOffset(0)
            self._world.note(f"watcher {self.number} at voter {voter_id} from {start}")
            process.loop.call_soon_threadsafe(partial(self._start, process, epoch, start))
        self._world.after(SILENCE_S, partial(self._check_silence, self._epoch))
        if self._world.chance(0.3):
            self._world.after(self._world.between(0.05, 3.0), partial(self._end, self._epoch))

    def _start(self, process: Process, epoch: int, start: MetadataOffset) -> None:
        if epoch == self._epoch:
            self._task = process.loop.create_task(self._follow(process, epoch, start))

    async def _follow(self, process: Process, epoch: int, start: MetadataOffset) -> None:
        try:
            async for event in watch(process.voter, start, frozenset()):
                self._send(process, epoch, event)
        except VoterCutOff:
            self._send(process, epoch, None)

    def _send(self, process: Process, epoch: int, event: pb.WatchEvent | None) -> None:
        if process is not process.host.process:
            return
        arrives = max(self._arrives_after, self._world.actor_time + self._world.between(0, 0.002))
        self._arrives_after = arrives
        self._world.at(arrives, partial(self._arrived, epoch, event, process.host.voter_id))

    def _leave(self) -> None:
        task, self._task = self._task, None
        process, self._at = self._at, None
        if task is not None and process is not None and process is process.host.process:
            process.loop.call_soon_threadsafe(task.cancel)

    def _check_silence(self, epoch: int) -> None:
        if epoch != self._epoch:
            return
        gone = self._at is None or self._at is not self._at.host.process
        if gone or self._world.now - self._heard > 4 * SILENCE_S:
            self._connect()
        else:
            self._world.after(SILENCE_S, partial(self._check_silence, epoch))

    def _end(self, epoch: int) -> None:
        if epoch == self._epoch:
            self._connect()

    # -- what comes ------------------------------------------------------------------------------

    def _arrived(self, epoch: int, event: pb.WatchEvent | None, voter_id: int) -> None:
        if epoch != self._epoch:
            return
        if self._services.is_cut(CLIENT, voter_id):
            # Nothing more of this stream: what follows a gap in it is never delivered.
            self._epoch += 1
            self._world.after(SILENCE_S, self._connect)
            return
        self._heard = self._world.now
        if event is None:
            self._epoch += 1
            self._world.after(0.1, self._connect)
        elif event.snapshot_chunk:
            self._chunks.append(event.snapshot_chunk)
        elif event.snapshot_done:
            self._take_snapshot(event.applied_offset)
        else:
            self._take(event)

    def _take_snapshot(self, offset: int) -> None:
        image = decode_snapshot(self._chunks)
        self._chunks = []
        self.snapshots += 1
        if image != self._safety.record.images.get(MetadataOffset(offset)):
            raise Violation(f"watcher {self.number}: a snapshot at {offset} of what never was")
        self._delivered = offset

    def _take(self, event: Any) -> None:  # noqa: ANN401 - a pb.WatchEvent
        record = self._safety.record
        through = max(event.applied_offset, self._delivered)
        expected = record.transactions(self._delivered, through)
        came = [item.offset for item in event.transactions]
        if came != expected or event.applied_offset > record.last_index:
            raise Violation(
                f"watcher {self.number}: after {self._delivered} came {came[:8]} up to "
                f"{event.applied_offset}, not {expected[:8]}"
            )
        for item in event.transactions:
            if item.transaction != record.entries[item.offset].command[1:]:
                raise Violation(f"watcher {self.number}: transaction {item.offset} is another one")
        self.seen += len(came)
        self._delivered = through
