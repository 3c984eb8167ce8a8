"""Watchers that remember what they saw, and what all of them together know of the log."""

import asyncio
import contextlib
import random
from collections.abc import Sequence
from typing import NamedTuple

from quorate.common.tls.identity import Security
from quorate.common.types import MetadataOffset, TopicPartition
from quorate.metadata_log.apply import apply
from quorate.metadata_log.image import Image
from quorate.metadata_log.records import ConfigSet, PartitionChange, Transaction
from quorate.quorum.client.quorum_client import QuorumClient, SnapshotLoaded
from tests.support.history import Effect, Jumped, Seen, Started
from tests.support.waiting import async_let_time_pass


class Watcher:
    """Follows the log from its beginning, and keeps the image as a standby controller does.

    A ``sleepy`` one goes away now and then, for long enough to fall behind compaction, and resumes
    from the offset where it stopped.
    """

    def __init__(
        self,
        name: str,
        addresses: Sequence[str],
        security: Security | None = None,
        sleepy: random.Random | None = None,
    ) -> None:
        self.name = name
        self.seen: list[Seen] = []
        self.transactions: dict[MetadataOffset, Transaction] = {}
        self.snapshots: dict[MetadataOffset, int] = {}
        """Fingerprint of the image of each snapshot that came, by its offset."""
        self.covered: list[tuple[int, int]] = []
        """Ranges of offsets of which it has every transaction; both ends are in."""
        self.image = Image()
        self.offset = MetadataOffset(0)
        """Everything up to here is in ``image``."""
        self.connections = 0
        self._client = QuorumClient(
            addresses, description=name, session_timeout_ms=1_000, security=security
        )
        self._sleepy = sleepy
        self._grown = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def has_state(self) -> bool:
        return bool(self.image.topics)

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name=self.name)

    async def stop(self) -> None:
        """Raises what it failed with."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await (self._task or asyncio.sleep(0))
        await self._client.close()

    async def reached(self, offset: MetadataOffset) -> None:
        while self.offset < offset:
            if self._task is not None and self._task.done():
                self._task.result()
            grown = self._grown
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.5):
                    await grown.wait()

    async def _run(self) -> None:
        while True:
            stay_s = None if self._sleepy is None else self._sleepy.uniform(0.5, 4.0)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(stay_s):
                    await self._watch()
            if self._sleepy is not None:
                await async_let_time_pass(self._sleepy.uniform(0.0, 4.0), "it watches at times")

    async def _watch(self) -> None:
        start = MetadataOffset(self.offset + 1)
        self.seen.append(Started(start))
        self.connections += 1
        async with contextlib.aclosing(self._client.watch(start)) as events:  # type: ignore[type-var]
            async for event in events:
                if isinstance(event, SnapshotLoaded):
                    self._take_snapshot(event.image)
                else:
                    self._take(event.transactions, event.applied_offset)
                grown, self._grown = self._grown, asyncio.Event()
                grown.set()

    def _take_snapshot(self, image: Image) -> None:
        self.seen.append(Jumped(image.offset))
        self.snapshots[image.offset] = fingerprint(image)
        self.image = image
        self.offset = max(self.offset, image.offset)

    def _take(
        self, transactions: list[tuple[MetadataOffset, Transaction]], applied: MetadataOffset
    ) -> None:
        for offset, transaction in transactions:
            self.seen.append(offset)
            self.transactions[offset] = transaction
            if offset > self.image.offset:  # Else the check of what it saw will say so.
                self.image = apply(self.image, offset, transaction).image
        if applied > self.offset:
            self._cover(self.offset + 1, applied)
            self.offset = applied

    def _cover(self, first: int, last: int) -> None:
        if self.covered and self.covered[-1][1] == first - 1:
            first = self.covered.pop()[0]
        self.covered.append((first, last))


def fingerprint(image: Image) -> int:
    """Return a hash of what the load writes; it is the same for equal images, in this process."""
    parts: list[object] = [image.controller_epoch, *image.sessions]
    parts += [(entity, *sorted(values.items())) for entity, values in image.configs.items()]
    for name, topic in image.topics.items():
        parts += [(name, at, p.version, p.leader_epoch) for at, p in enumerate(topic.partitions)]
    return hash(frozenset(parts))


class Replayed(NamedTuple):
    """The log as all watchers together have it, applied once more from its first transaction."""

    offsets: list[int]
    effects: list[Effect]
    image: Image
    violations: list[str]


def replay(watchers: Sequence[Watcher], last_offset: MetadataOffset) -> Replayed:
    """Put the log together and apply it; every snapshot must be what the log makes of it.

    Raises:
        RuntimeError: no watcher saw some part: let the voters retain more.
    """
    _require_whole([range_ for w in watchers for range_ in w.covered], last_offset)
    violations: list[str] = []
    log: dict[MetadataOffset, Transaction] = {}
    for watcher in watchers:
        for offset, transaction in watcher.transactions.items():
            if log.setdefault(offset, transaction) != transaction:
                violations.append(f"{watcher.name} saw something else than others at {offset}")
    snapshots = sorted((o, mark, w.name) for w in watchers for o, mark in w.snapshots.items())
    effects: list[Effect] = []
    versions: dict[str, int] = {}
    image = Image()
    for offset in sorted(log):
        _compare(snapshots, offset, image, violations)
        if offset <= last_offset:
            applied = apply(image, offset, log[offset])
            image = applied.image
            if applied.result.ok and applied.result.offset == offset:
                effects += _effects(offset, log[offset], versions)
    _compare(snapshots, MetadataOffset(last_offset + 1), image, violations)
    return Replayed(sorted(log), effects, image, violations)


def _compare(
    snapshots: list[tuple[MetadataOffset, int, str]],
    before: MetadataOffset,
    image: Image,
    violations: list[str],
) -> None:
    """Take off the snapshots that stand before an offset: ``image`` is what they should be."""
    while snapshots and snapshots[0][0] < before:
        at, mark, name = snapshots.pop(0)
        if mark != fingerprint(image):
            violations.append(f"the snapshot of {at} that {name} got is not what the log makes")


def _effects(
    offset: MetadataOffset, transaction: Transaction, versions: dict[str, int]
) -> list[Effect]:
    """Return what a transaction that took effect wrote, as far as the load knows it."""
    found = []
    for operation in transaction.operations:
        for record in operation.records:
            if isinstance(record, ConfigSet) and record.value is not None:
                key, token = record.entity_name, int(record.value)
            elif isinstance(record, PartitionChange):
                key = str(TopicPartition(record.topic, record.partition))
                token = record.leader_epoch
            else:
                continue
            versions[key] = versions.get(key, 0) + 1
            found.append(Effect(offset, key, token, versions[key]))
    return found


def _require_whole(ranges: list[tuple[int, int]], last_offset: MetadataOffset) -> None:
    known = 0
    for first, last in sorted(ranges):
        if first > known + 1:
            break
        known = max(known, last)
    if known < last_offset:
        raise RuntimeError(
            f"no watcher saw offset {known + 1} (of {last_offset}): the voters compacted it away "
            "too soon for this test"
        )
