"""``DeadLetters``: writes the dead letters of the share groups whose partitions this broker leads
(KIP-1191).

A record leaves its group when its dead letter is in the log, so a crash may write a dead letter
twice but loses none. Nothing waits for ever: a topic that cannot be written to for
``GIVE_UP_MS`` is given up, as one that is misconfigured is at once. Records that come then leave
the group without a dead letter, until one can be written again. They are counted, and the log says
which they are.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Final, NamedTuple

from quorate.broker.common.errors import KafkaError, error_name
from quorate.broker.coordinator.groups.shard_clock import ShardClock
from quorate.broker.coordinator.share.dead_letters.dead_letter_batch import (
    NOTHING,
    DeadLetterBatch,
    Source,
    headers_of,
)
from quorate.broker.coordinator.share.dead_letters.dead_letter_figures import (
    CONFIGURATION,
    UNAVAILABLE,
    DeadLetterFigures,
)
from quorate.broker.coordinator.share.dead_letters.dead_letter_peers import (
    DeadLetterPeers,
    DeadLetterWrite,
)
from quorate.broker.coordinator.share.dead_letters.dead_letter_place import Place
from quorate.broker.coordinator.share.dead_letters.dead_letter_topics import (
    DeadLetterTopics,
    Refused,
)
from quorate.broker.coordinator.share.dead_letters.source_records import (
    SourceRecords,
    read_source,
)
from quorate.broker.coordinator.share.state.dead_records import DeadRecords
from quorate.broker.quota.work_turns import WorkTurns
from quorate.broker.replication.manager import ReplicaManager
from quorate.common.types import NO_BROKER
from quorate_proto.v1 import errors_pb2

PATIENCE_MS: Final = 5_000
"""The time for which one batch is tried again: an election of another leader takes less. A member
whose rejection waits for it is answered before its request times out."""
GIVE_UP_MS: Final = 300_000
"""The time for which a topic may be unavailable. Then records leave their groups without dead
letters."""
COUNTED_MS: Final = 60_000
"""The most that the time between two tries counts: nobody knows what was in between."""
SHORT_PATIENCE_MS: Final = 500
"""The time for which a write is tried to a topic that was given up."""
WRITES_PER_TOPIC: Final = 4
"""The number of writes that are under way at a time. Each holds what was read at once and a
batch."""
_PAUSES_S: Final = (0.02, 0.05, 0.1, 0.2, 0.5)

_TRY_AGAIN: Final = frozenset(
    {
        errors_pb2.NOT_LEADER_OR_FOLLOWER,
        errors_pb2.LEADER_NOT_AVAILABLE,
        errors_pb2.UNKNOWN_TOPIC_OR_PARTITION,
        errors_pb2.UNKNOWN_TOPIC_ID,
        errors_pb2.NOT_ENOUGH_REPLICAS,
        errors_pb2.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        errors_pb2.REQUEST_TIMED_OUT,
        errors_pb2.BROKER_NOT_AVAILABLE,
        errors_pb2.KAFKA_STORAGE_ERROR,
        errors_pb2.UNKNOWN_SERVER_ERROR,
        # The leader does not know yet what this broker knows: that the topic takes dead letters.
        errors_pb2.TOPIC_AUTHORIZATION_FAILED,
    }
)
"""The errors that pass without a change of the configuration. ``KAFKA_STORAGE_ERROR`` is that of a
disk that is full or broken."""


class DeadLetterParts(NamedTuple):
    """The parts that dead letters are made of and written with."""

    topics: DeadLetterTopics
    replicas: ReplicaManager
    peers: DeadLetterPeers
    turns: WorkTurns
    clock: ShardClock


_Way = tuple[str, int]
"""A dead letter topic, and the partition of the source: both determine the partition that is
written to. So a partition that can be written to does not hide one that cannot."""


class _Failing(NamedTuple):
    """The failures of a way since a write last succeeded."""

    unavailable_ms: int
    failed_ms: int
    """The time at which the last write failed, in ms of the monotonic clock."""

    @property
    def is_given_up(self) -> bool:
        return self.unavailable_ms >= GIVE_UP_MS


class DeadLetters:
    """The dead letters of one broker. All methods run on the event loop."""

    def __init__(self, parts: DeadLetterParts) -> None:
        self._parts = parts
        self.figures = DeadLetterFigures(parts.clock.now_ms)
        self._slots: dict[str, asyncio.Semaphore] = {}
        self._failing: dict[_Way, _Failing] = {}

    def close(self) -> None:
        """Write nothing more. Records whose dead letters are not written stay in their groups."""
        self._parts.topics.close()
        self._parts.peers.close()

    def are_on(self, source: Source) -> bool:
        """Return whether the group has a dead letter topic for the records of the source."""
        return bool(self._parts.topics.topic_of(source))

    async def write(self, source: Source, dead: Sequence[DeadRecords]) -> None:
        """Return when the records may leave their group.

        Raises:
            KafkaError: their dead letters are not written now; the records stay.
        """
        topic = self._parts.topics.topic_of(source)
        if not dead or not topic:
            return
        records = sum(one.records for one in dead)
        way = topic, source.tp.partition
        patience_s = self._patience_ms(way) / 1000
        slot = self._slots.setdefault(topic, asyncio.Semaphore(WRITES_PER_TOPIC))
        self.figures.waiting += records
        try:
            async with asyncio.timeout(patience_s) as limit, slot:
                async for _ in self._write(source, dead):
                    self._failing.pop(way, None)
                    limit.reschedule(asyncio.get_running_loop().time() + patience_s)
        except Refused as refused:
            self.figures.miss(source, dead, CONFIGURATION, str(refused))
        except (TimeoutError, KafkaError) as error:
            if not self._failed(way).is_given_up:
                raise KafkaError(
                    errors_pb2.COORDINATOR_NOT_AVAILABLE,
                    f"dead letters are not written to {topic} now: {str(error) or 'it takes long'}",
                ) from error
            self.figures.miss(source, dead, UNAVAILABLE, f"{topic} was unavailable for too long")
        else:
            self.figures.written += records
        finally:
            self.figures.waiting -= records

    def _patience_ms(self, way: _Way) -> int:
        known = self._failing.get(way)
        if known is None or not known.is_given_up:
            return PATIENCE_MS
        is_recent = self._parts.clock.now_ms() - known.failed_ms < COUNTED_MS
        return SHORT_PATIENCE_MS if is_recent else PATIENCE_MS

    def _failed(self, way: _Way) -> _Failing:
        """Note that writing fails now. A failure of long ago does not count as the time since."""
        now_ms = self._parts.clock.now_ms()
        before = self._failing.get(way, _Failing(0, now_ms))
        since_ms = min(now_ms - before.failed_ms, COUNTED_MS)
        failing = self._failing[way] = _Failing(before.unavailable_ms + since_ms, now_ms)
        return failing

    async def _write(self, source: Source, dead: Sequence[DeadRecords]) -> AsyncIterator[None]:
        """Write dead letters, and try again until the caller's time is over. Yield after each
        batch, so that many of them may take longer than one.

        Raises:
            Refused: they cannot be written before a configuration changes.
            KafkaError: the source cannot be read.
        """
        place = await self._parts.topics.place_for(source)
        async for batch in self._batches(source, dead, place.batch_bytes_max):
            pauses = iter(_PAUSES_S)
            while code := await self._write_batch(place, batch):
                if code not in _TRY_AGAIN:
                    raise Refused(f"{place.tp} refuses them: {error_name(code)}")
                await asyncio.sleep(next(pauses, _PAUSES_S[-1]))
                place = await self._parts.topics.place_for(source)
            yield

    async def _write_batch(self, place: Place, batch: bytes) -> int:
        if place.leader == NO_BROKER:
            return errors_pb2.LEADER_NOT_AVAILABLE
        write = DeadLetterWrite(place.tp, place.topic_id, batch)
        return await self._parts.peers.write(place.leader, write)

    async def _batches(
        self, source: Source, dead: Sequence[DeadRecords], bytes_max: int
    ) -> AsyncIterator[bytes]:
        """Yield the dead letters in batches. Thousands of them are encoded in turns."""
        batch = DeadLetterBatch(bytes_max)
        found = SourceRecords(-1, {})
        for run in dead:
            first = run.first
            while first <= run.last:
                if found.last < first:
                    # Ranges of single records may lie in one batch: it is not read for each.
                    found = await self._contents(source, first, dead[-1].last)
                last = min(found.last, run.last)
                async for offset in self._parts.turns.through(range(first, last + 1)):
                    headers = headers_of(source, run, offset)
                    content = found.contents.get(offset, NOTHING)
                    if not batch.add(headers, content):
                        yield batch.encoded(self._parts.clock.wall_ms())
                        batch = DeadLetterBatch(bytes_max)
                        batch.add(headers, content)
                first = last + 1
        yield batch.encoded(self._parts.clock.wall_ms())

    async def _contents(self, source: Source, first: int, last: int) -> SourceRecords:
        if self._parts.topics.copies(source.group_id):
            return await read_source(self._parts.replicas, source, first, last)
        return SourceRecords(last, {})
