"""``ShareLeader``: the share-partitions of the partitions that this broker leads (KIP-932)."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from quorate.broker.common.errors import KafkaError
from quorate.broker.coordinator.share.led_share_partition import (
    LedSharePartition,
    ShareLeaderParts,
)
from quorate.broker.coordinator.share.share_reads import batches_for, records_of
from quorate.broker.coordinator.share.state.acknowledgements import AcknowledgementBatch
from quorate.broker.coordinator.share.state.acquiring import Wanted
from quorate.broker.coordinator.share.state.record_state import AcquiredRecords
from quorate.broker.coordinator.share.state.stored_state import SharePartitionKey
from quorate.broker.replication.api import (
    FetchOutcome,
    FetchParams,
    FetchPartition,
    ReadMemory,
)
from quorate.broker.replication.wakeup import Wakeup
from quorate.common.background_tasks import BackgroundTasks
from quorate.common.types import TopicPartition
from quorate_proto.v1 import errors_pb2


class ShareFetchParams(NamedTuple):
    """The parameters of all share-partitions of one fetch, as of ``FetchParams``."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    room: ReadMemory


class ShareOutcome(NamedTuple):
    """What a member gets of one share-partition."""

    error_code: int = errors_pb2.NONE
    error_message: str | None = None
    acquired: Sequence[AcquiredRecords] = ()
    chunks: Sequence[memoryview] = ()

    @property
    def size(self) -> int:
        return sum(map(len, self.chunks))


Outcomes = dict[SharePartitionKey, ShareOutcome]


class ShareLeader:
    """All share-partitions that are led here. All methods run on the event loop."""

    def __init__(self, parts: ShareLeaderParts) -> None:
        self._parts = parts
        self._led: dict[SharePartitionKey, LedSharePartition] = {}
        self._tasks = BackgroundTasks()
        self.handed_out = 0
        """The records that were handed to members."""
        self.handed_to: Counter[str] = Counter()
        """Those of each group that is fetched for here."""
        self.acknowledged = 0

    def __iter__(self) -> Iterator[LedSharePartition]:
        return iter(tuple(self._led.values()))

    def close(self) -> None:
        """End all share-partitions; who waits is told to look elsewhere."""
        self._tasks.cancel()
        for led in self:
            led.end()
        self._led.clear()

    def forget_group(self, group_id: str, is_unused: Callable[[], bool]) -> None:
        """Forget the share-partitions of a group, because nobody fetches for it here any more.

        Its offsets may be reset now, so the next member has to find the newest state.
        """
        for led in self:
            if led.key.group_id == group_id:
                self._tasks.start(self._forget(led, is_unused))

    async def _forget(self, led: LedSharePartition, is_unused: Callable[[], bool]) -> None:
        await led.until_written()
        if is_unused() and self._led.get(led.key) is led:
            led.end()
            del self._led[led.key]
            self.handed_to.pop(led.key.group_id, None)

    # -- fetching --------------------------------------------------------------------------------

    async def fetch(
        self,
        wants: Mapping[SharePartitionKey, TopicPartition],
        wanted: Wanted,
        params: ShareFetchParams,
    ) -> Outcomes:
        """Hand records to a member, by long poll: those partitions first that come first.

        Return an outcome for each share-partition that has records or an error.
        """
        until_ms = self._parts.clock.now_ms() + params.max_wait_ms
        led, outcomes = await self._led_of(wants)
        waiting = Wakeup()
        try:
            while True:
                for one in led:
                    one.wait(waiting)
                left_ms = until_ms - self._parts.clock.now_ms()
                is_last = left_ms <= 0 or bool(outcomes)
                for lot in _lots(led, waiting, wanted, params, is_last=is_last):
                    outcomes |= await self._attempt(lot, waiting, wanted, params, is_last=is_last)
                    if outcomes:
                        return outcomes
                if is_last:
                    return outcomes
                await waiting.wait(left_ms / 1000)
        finally:
            for one in led:
                one.wait_no_more(waiting)

    async def _led_of(
        self, wants: Mapping[SharePartitionKey, TopicPartition]
    ) -> tuple[list[LedSharePartition], Outcomes]:
        """Return the share-partitions, loaded, and an outcome for each that is not led here."""
        led: list[LedSharePartition] = []
        outcomes: Outcomes = {}
        for key, tp in wants.items():
            try:
                led.append(self._get(key, tp))
            except KafkaError as error:
                outcomes[key] = ShareOutcome(error.code, error.message)
        loads = await asyncio.gather(*(one.load() for one in led), return_exceptions=True)
        loaded: list[LedSharePartition] = []
        for one, failed in zip(led, loads, strict=True):
            if failed is None:
                loaded.append(one)
            elif isinstance(failed, KafkaError):
                outcomes[one.key] = ShareOutcome(failed.code, failed.message)
            else:
                raise failed
        return loaded, outcomes

    def _get(self, key: SharePartitionKey, tp: TopicPartition) -> LedSharePartition:
        known = self._led.get(key)
        if known is not None and known.is_current:
            return known
        table = self._parts.replicas.table
        hosted = table.named(tp, key.topic_id)
        if hosted is None or not hosted.leads:
            raise KafkaError(*table.not_leader(tp, hosted))
        self._drop_ended()
        led = self._led[key] = LedSharePartition(key, hosted, self._parts)
        return led

    def _drop_ended(self) -> None:
        for key, led in tuple(self._led.items()):
            if not led.is_current:
                led.end()
                del self._led[key]

    async def _attempt(
        self,
        led: Sequence[LedSharePartition],
        waiting: Wakeup,
        wanted: Wanted,
        params: ShareFetchParams,
        *,
        is_last: bool,
    ) -> Outcomes:
        """Read what may be handed out, and hand it out if it is enough."""
        outcomes: Outcomes = {}
        reading: dict[LedSharePartition, int] = {}
        for one in led:
            if not one.is_current:
                message = f"{one} is led elsewhere"
                outcomes[one.key] = ShareOutcome(errors_pb2.NOT_LEADER_OR_FOLLOWER, message)
            elif not one.is_reading and (offset := one.state.fetch_offset()) is not None:
                one.is_reading = True
                reading[one] = offset
        if not reading or wanted.max_records <= 0 or params.max_bytes <= 0:
            self._end_reading(reading)
            for one in reading:
                one.wait_behind(waiting)
            return outcomes
        try:
            found = await self._read(reading, params)
            size = sum(outcome.size for outcome in found)
            if is_last or size >= params.min_bytes or any(one.error_code for one in found):
                outcomes |= self._hand_out(dict(zip(reading, found, strict=True)), wanted)
        finally:
            self._end_reading(reading)
        if not outcomes:
            for one in reading:
                one.wait_behind(waiting)
        return outcomes

    @staticmethod
    def _end_reading(reading: Mapping[LedSharePartition, int]) -> None:
        for one in reading:
            one.end_reading()

    async def _read(
        self, reading: Mapping[LedSharePartition, int], params: ShareFetchParams
    ) -> list[FetchOutcome]:
        """Read from each partition, as much from one as from another."""
        share_bytes = max(1, params.max_bytes // len(reading))
        isolations = {one.isolation for one in reading}
        found: dict[LedSharePartition, FetchOutcome] = {}
        for isolation in isolations:
            some = [one for one in reading if one.isolation is isolation]
            wants = [
                FetchPartition(
                    one.tp, reading[one], share_bytes, one.leader_epoch, one.key.topic_id
                )
                for one in some
            ]
            read = await self._parts.replicas.fetch(
                wants,
                FetchParams(
                    max_wait_ms=0,
                    min_bytes=0,
                    max_bytes=params.max_bytes,
                    room=params.room,
                    isolation=isolation,
                ),
            )
            found.update(zip(some, read, strict=True))
        return [found[one] for one in reading]

    def _hand_out(
        self, found: Mapping[LedSharePartition, FetchOutcome], wanted: Wanted
    ) -> Outcomes:
        outcomes: Outcomes = {}
        for one, outcome in found.items():
            code = outcome.error_code
            if code == errors_pb2.OFFSET_OUT_OF_RANGE:
                continue  # The log begins later now, or ends before: that is seen next time.
            if code:
                outcomes[one.key] = ShareOutcome(code, None)
                continue
            if not outcome.size or not one.is_current:
                continue
            try:
                one.require_lease()
            except KafkaError as error:
                outcomes[one.key] = ShareOutcome(error.code, error.message)
                continue
            state = one.state
            batches, read = batches_for(outcome, state.window.end, wanted.max_records)
            acquired = state.acquire(wanted, read, self._parts.clock.now_ms())
            one.set_timer()
            if acquired:
                chunks = tuple(records_of(batches, acquired))
                outcomes[one.key] = ShareOutcome(acquired=acquired, chunks=chunks)
                taken = sum(records.records for records in acquired)
                self.handed_out += taken
                self.handed_to[one.key.group_id] += taken
                wanted = wanted._replace(max_records=wanted.max_records - taken)
        return outcomes

    # -- acknowledging ---------------------------------------------------------------------------

    async def acknowledge(
        self,
        key: SharePartitionKey,
        tp: TopicPartition,
        member_id: str,
        batches: Sequence[AcknowledgementBatch],
    ) -> None:
        """Take what a member says of records; return when that is written.

        Raises:
            KafkaError: nothing of it is taken, or nobody knows.
        """
        led = self._get(key, tp)
        await led.load()
        led.require_lease()
        changes = led.state.acknowledge(member_id, batches, self._parts.clock.now_ms())
        led.set_timer()
        await led.write(changes)
        self.acknowledged += sum(batch.records for batch in batches)

    def release(self, group_id: str, member_id: str) -> None:
        """Have a member give back all that it has, because its session is over."""
        for led in self:
            if led.key.group_id == group_id and led.is_current:
                led.write_later(led.state.release(member_id))


def _lots(
    led: Sequence[LedSharePartition],
    waiting: Wakeup,
    wanted: Wanted,
    params: ShareFetchParams,
    *,
    is_last: bool,
) -> Iterator[list[LedSharePartition]]:
    """Yield the share-partitions in the order in which they are read: so many together as may have
    the records that are wanted.

    Whoever reads a share-partition keeps others away, so a fetch of few records reads few, and only
    when it is its turn; the last time it does not wait for that.
    """
    lot: list[LedSharePartition] = []
    ahead = 0
    for one in led:
        if one.is_current:
            if not is_last and not one.is_turn_of(waiting):
                continue
            ahead += one.records_ahead
        lot.append(one)
        if ahead >= wanted.max_records and params.min_bytes <= 1:
            yield lot
            lot, ahead = [], 0
    if lot:
        yield lot
