"""Validation of what clients produce, in a thread, where it takes too long for the event loop.

Records that are not compressed are validated in microseconds. What is compressed takes as long as
its decompression, and what needs the codec of its topic as long as compression: batches of this
kind wait here. Whatever comes for the same partition meanwhile waits behind them, from
whatever client: batches are appended in the order in which they came, although requests of one
connection overlap. A thread is given the batches of many partitions at a time, such as those of one
request, because each change of threads costs as much as the validation of a small batch.

Batches that name schemas which are not known here wait for the registry as well: their partition
waits, and no thread does.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

from quorate.broker.common.errors import KafkaError, without_traceback
from quorate.broker.log.batches.log_validator import (
    IN_A_THREAD,
    LogValidator,
    ProducedLog,
)
from quorate.broker.log.batches.recompression import recompressed
from quorate.broker.log.batches.record_batch import Batch
from quorate.broker.log.batches.schema_prefixes import SchemaNames
from quorate.broker.quota.room_turns import RoomTurns
from quorate.broker.replication.api import ProduceEntry
from quorate.broker.replication.hosting.hosted_partition import HostedPartition
from quorate.broker.replication.serving.known_schemas import KnownSchemas
from quorate.common.background_tasks import BackgroundTasks
from quorate_proto.v1 import errors_pb2

log = logging.getLogger(__name__)

THREADS: Final = 2
"""The number of threads that validate: each holds the decompressed records of a batch in memory."""
TAKEN_BYTES: Final = 1 << 20
"""A thread takes more of the batches that wait until it has this many bytes."""
TAKEN_ENTRIES: Final = 64
"""The most entries that a thread takes: the event loop appends them in one go afterwards."""
FEW_ENTRIES: Final = 256
"""The number of entries that may wait here while large requests append more."""

Release: TypeAlias = Callable[[ProduceEntry, list[Batch] | KafkaError], None]
"""A function that goes on with the batches of an entry, or with the refusal of it."""


class _Held(NamedTuple):
    entry: ProduceEntry
    release: Release


class _Named(NamedTuple):
    """Valid batches, and the schemas that their records name."""

    batches: list[Batch]
    names: SchemaNames


_Taken: TypeAlias = tuple[HostedPartition, ProduceEntry]
_Outcome: TypeAlias = list[Batch] | KafkaError | _Named


class ValidationQueue:
    """The validation of one broker. All but the work in threads happens on the event loop."""

    def __init__(self, now_ms: Callable[[], int], schemas: KnownSchemas) -> None:
        """``now_ms`` is the wall clock, by which timestamps are judged."""
        self.queues: dict[HostedPartition, deque[_Held]] = {}
        """The entries that wait, by partition, in the order in which they came."""
        self.turns = RoomTurns(lambda: self._waiting <= FEW_ENTRIES)
        """The turns of requests with very many batches, which wait before they append some."""
        self._now_ms = now_ms
        self._schemas = schemas
        self._waiting = 0
        self._ready: deque[HostedPartition] = deque()
        self._in_threads: list[LogValidator] = []
        self._working = 0
        self._tasks = BackgroundTasks()

    def hold(self, hosted: HostedPartition, entry: ProduceEntry, release: Release) -> None:
        """Have ``release`` called when the entry is validated, in the order of the calls."""
        self._waiting += 1
        queue = self.queues.get(hosted)
        if queue is not None:
            queue.append(_Held(entry, release))
        else:
            self.queues[hosted] = deque([_Held(entry, release)])
            self._ready.append(hosted)
        self._have_worked()

    def _have_worked(self) -> None:
        if self._ready and self._working < THREADS:
            self._working += 1
            self._tasks.start(self._work())

    async def close(self) -> None:
        """Refuse what waits: its producers look for another leader."""
        await self._tasks.close()
        for queue in self.queues.values():
            while queue:
                entry, release = self._take_first(queue)
                message = f"the leader of {entry.tp} is stopping"
                release(entry, KafkaError(errors_pb2.NOT_LEADER_OR_FOLLOWER, message))
        self.queues.clear()
        self.turns.go_on()

    async def _work(self) -> None:
        """Validate as long as anything waits that no other thread has taken."""
        try:
            while self._ready:
                await self._validate_some()
        finally:
            self._working -= 1

    async def _validate_some(self) -> None:
        taken = self._take()
        asking: dict[HostedPartition, list[_Outcome]] = {}
        try:
            for (hosted, _), outcome in zip(taken, await self._in_a_thread(taken), strict=True):
                if hosted in asking or self._must_ask(outcome):
                    asking.setdefault(hosted, []).append(outcome)
                    continue
                entry, release = self._take_first(self.queues[hosted])
                release(entry, _judged(outcome, None, entry))
        finally:
            self.turns.go_on()
            self._go_on([hosted for hosted, _ in taken if hosted not in asking])
            for hosted, outcomes in asking.items():
                self._tasks.start(self._ask(hosted, outcomes))

    def _must_ask(self, outcome: _Outcome) -> bool:
        return isinstance(outcome, _Named) and not self._schemas.has_all(outcome.names.ids)

    async def _ask(self, hosted: HostedPartition, outcomes: Sequence[_Outcome]) -> None:
        """Release the first entries of a partition, each when all its schemas were looked up."""
        try:
            for outcome in outcomes:
                unknown: int | None = None
                try:
                    if isinstance(outcome, _Named):
                        unknown = await self._schemas.first_unknown(outcome.names.ids)
                except KafkaError as error:
                    outcome = without_traceback(error)
                entry, release = self._take_first(self.queues[hosted])
                release(entry, _judged(outcome, unknown, entry))
        finally:
            self.turns.go_on()
            self._go_on([hosted])
            self._have_worked()

    def _go_on(self, partitions: Sequence[HostedPartition]) -> None:
        """Have a thread take what else waits in partitions whose first entries are released."""
        for hosted in dict.fromkeys(partitions):
            if self.queues[hosted]:
                self._ready.append(hosted)
            else:
                del self.queues[hosted]

    def _take_first(self, queue: deque[_Held]) -> _Held:
        self._waiting -= 1
        return queue.popleft()

    def _take(self) -> list[_Taken]:
        """Return entries to validate next. They stay in their queues until they are validated."""
        taken: list[_Taken] = []
        size = 0
        while self._ready and size < TAKEN_BYTES and len(taken) < TAKEN_ENTRIES:
            hosted = self._ready.popleft()
            for entry, _ in self.queues[hosted]:
                taken.append((hosted, entry))
                size += len(entry.records)
                if size >= TAKEN_BYTES or len(taken) == TAKEN_ENTRIES:
                    break
        return taken

    async def _in_a_thread(self, taken: Sequence[_Taken]) -> list[_Outcome]:
        validators = self._in_threads
        validator = validators.pop() if validators else LogValidator(IN_A_THREAD)
        outcomes = await asyncio.to_thread(_validated_all, validator, taken, self._now_ms())
        validators.append(validator)
        return outcomes


def _validated_all(validator: LogValidator, taken: Sequence[_Taken], now_ms: int) -> list[_Outcome]:
    return [_validated(validator, hosted.log, entry, now_ms) for hosted, entry in taken]


def _validated(
    validator: LogValidator, target: ProducedLog, entry: ProduceEntry, now_ms: int
) -> _Outcome:
    where, parts = entry.tp, target.storing.named_parts
    names = None if parts is None else SchemaNames(parts)
    try:
        batches = validator.validate(entry.records, target, entry.origin, now_ms, where, names)
        codec = target.storing.codec
        if codec is not None:
            batches = recompressed(batches, codec, target.max_batch_bytes, where)
    except KafkaError as error:
        return without_traceback(error)
    except Exception:
        log.exception("cannot validate a batch for %s", where)
        message = f"a batch for {where} could not be validated"
        return KafkaError(errors_pb2.UNKNOWN_SERVER_ERROR, message)
    return batches if names is None else _Named(batches, names)


def _judged(
    outcome: _Outcome, unknown: int | None, entry: ProduceEntry
) -> list[Batch] | KafkaError:
    """Return the batches of an entry, or why they are refused.

    Args:
        outcome: what the validation has found.
        unknown: a schema id that the registry does not have.
        entry: what was produced.
    """
    if not isinstance(outcome, _Named):
        return outcome
    refusal = outcome.names.refusal([] if unknown is None else [unknown], entry.tp)
    return outcome.batches if refusal is None else refusal
