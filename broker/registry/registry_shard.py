"""The registry at the broker that leads the topic ``_schemas``: its state, and the one place where
changes are decided.

The state is read from the log and from nowhere else. A change is appended, and read again with the
next request, which waits until it is committed. So records that somebody else has produced to the
topic, such as a copy of another registry, count as well.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, Final

from quorate.broker.common.errors import KafkaError
from quorate.broker.config.registry import SCHEMAS_TOPIC
from quorate.broker.coordinator.shards.coordinator_records import LogBatch, LogRecord
from quorate.broker.coordinator.shards.led_partition import LedPartition
from quorate.broker.coordinator.shards.partition_coordinator import PartitionCoordinator
from quorate.broker.registry.operations.calls import (
    Decision,
    HeavyWork,
    Json,
    RegistryCall,
)
from quorate.broker.registry.operations.table import Operation
from quorate.broker.registry.state.registry_state import RegistryState
from quorate.broker.security.authorizer import Rights
from quorate_proto.v1 import errors_pb2

APPEND_TIMEOUT_MS: Final = 10_000


class RegistryShard:
    """The registry while this broker leads its topic in one epoch.

    All methods run on the event loop, and raise KafkaError if another broker leads, or may.
    """

    def __init__(self, name: str, log: LedPartition, executor: Executor) -> None:
        self.name = name
        self.is_loading = True
        self._log = log
        self._executor = executor
        self._state = RegistryState()
        self._next_offset = 0
        self._uncommitted: dict[int, list[LogRecord]] = {}
        """Records of transactions that are open, by producer id."""
        self._reading = asyncio.Lock()
        self._writing = asyncio.Lock()

    async def load(self) -> None:
        """Read the log for the first time."""
        async with self._reading:
            await self._read_on()
        self.is_loading = False

    def end(self, error_code: int) -> None:
        """End; requests notice it by the log, which this broker no longer leads."""

    async def carry_out(self, operation: Operation, call: RegistryCall, rights: Rights) -> Json:
        """Return the answer to a request.

        Raises:
            RegistryError: it is refused.
        """
        outcome = operation.decide(await self._caught_up(), call, rights)
        while isinstance(outcome, HeavyWork):
            result = await self._computed(outcome)
            if not operation.is_change:
                return outcome.decide(result).answer
            async with self._writing:
                again = operation.decide(await self._caught_up(), call, rights)
                if isinstance(again, HeavyWork) and again.plan == outcome.plan:
                    return await self._written(again.decide(result))
            outcome = again
        if not operation.is_change:
            return outcome.answer
        async with self._writing:
            decision = operation.decide(await self._caught_up(), call, rights)
            assert isinstance(decision, Decision), "a kind of request has one kind of outcome"
            return await self._written(decision)

    async def _computed(self, work: HeavyWork[Any, Any]) -> Any:  # noqa: ANN401 - what it computes
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, work.compute, work.plan)

    async def _written(self, decision: Decision) -> Json:
        if decision.records:
            await self._log.append(decision.records)
        return decision.answer

    async def _caught_up(self) -> RegistryState:
        """Return the state that has everything in the log, all of it committed."""
        self._require_lease()
        if self._next_offset != self._log.log_end_offset:
            async with self._reading:
                await self._read_on()
            self._require_lease()
        return self._state

    async def _read_on(self) -> None:
        end = self._log.log_end_offset
        async for entry in self._log.replay_from(self._next_offset):
            if not isinstance(entry, LogBatch):
                records = self._uncommitted.pop(entry.producer_id, [])
                self._apply(records if entry.committed else [])
            elif entry.producer_id is None:
                self._apply(entry.records)
            else:
                self._uncommitted.setdefault(entry.producer_id, []).extend(entry.records)
        self._next_offset = end

    def _apply(self, records: Any) -> None:  # noqa: ANN401 - a sequence of records
        for record in records:
            self._state.apply(record)

    def _require_lease(self) -> None:
        if not self._log.has_valid_lease:
            raise KafkaError(
                errors_pb2.NOT_LEADER_OR_FOLLOWER, f"{self.name} is led elsewhere, or may be"
            )


class RegistryLeader(PartitionCoordinator[RegistryShard]):
    """Has the shard while this broker leads the topic."""

    def __init__(self, partition_count: Callable[[str], int], executor: Executor) -> None:
        """``executor`` has the threads on which schemas are parsed and compared."""
        super().__init__("registry", SCHEMAS_TOPIC, partition_count)
        self._executor = executor

    def _new_shard(self, name: str, log: LedPartition) -> RegistryShard:
        return RegistryShard(name, log, self._executor)

    @property
    def shard(self) -> RegistryShard | None:
        """The shard, once it has been read, or None."""
        found = self.shard_in(0)
        return None if found is None or found.is_loading else found
