"""Follows the metadata log by watch and holds the newest image.

Every broker runs one: the active controller decides from it, standby controllers are ready with it,
and admin state (configs, ACLs, quotas, tokens, features) reaches the broker only through it (F3).
Leadership arrives by control requests, whose content may come from this image.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Final, Literal, Protocol, TypeVar

import immutables

from quorate.common.invariants import BrokenInvariant
from quorate.common.types import MetadataOffset
from quorate.metadata_log.apply import apply_run
from quorate.metadata_log.features import NEWEST_METADATA_VERSION, why_unreadable
from quorate.metadata_log.image import Changes, Image
from quorate.metadata_log.records import Transaction
from quorate.quorum.client.quorum_client import SnapshotLoaded, TransactionsApplied, WatchEvent
from quorate.quorum.quorum_errors import MetadataUnreadable

K = TypeVar("K")
V = TypeVar("V")

log = logging.getLogger(__name__)

ChangeKind = Literal[
    "additions",
    "brokers",
    "client_quotas",
    "configs",
    "controller",
    "deletions",
    "features",
    "removals",
    "scram",
    "topics",
]
"""A field of ``Changes`` that an observer can subscribe to."""

Observer = Callable[[Image, Changes], None]
"""Receives the new image and the changes since the last one. It runs on the event loop and must not
block."""


OPERATIONS_PER_RUN: Final = 2_000
"""The number of operations that are applied together, in about 10 ms. Then other tasks get their
turn."""

Run = list[tuple[MetadataOffset, Transaction]]


def runs_of(transactions: Run) -> Iterator[Run]:
    """Yield ``transactions`` in order, in runs of about ``OPERATIONS_PER_RUN`` operations."""
    run: Run = []
    operations = 0
    for numbered in transactions:
        run.append(numbered)
        operations += len(numbered[1].operations)
        if operations >= OPERATIONS_PER_RUN:
            yield run
            run, operations = [], 0
    if run:
        yield run


class Watchable(Protocol):
    """The part of the quorum client that is needed here."""

    def watch(self, from_offset: MetadataOffset) -> AsyncIterator[WatchEvent]:
        """Yield the events from ``from_offset`` on, in order, reconnecting by itself."""


class MetadataFollower:
    """Holds the newest image, and calls observers when it changes."""

    def __init__(self, quorum: Watchable) -> None:
        self._quorum = quorum
        self._observers: list[tuple[Observer, tuple[ChangeKind, ...]]] = []
        self._waiters: list[tuple[MetadataOffset, asyncio.Future[None]]] = []
        self._task: asyncio.Task[None] | None = None
        self.has_failed = asyncio.Event()
        """Set when the log cannot be applied any more: the image is too old for every decision."""
        self.failure: BrokenInvariant | MetadataUnreadable | None = None
        self.image = Image()
        self.applied_offset = MetadataOffset(0)

    def subscribe(self, observer: Observer, *kinds: ChangeKind) -> None:
        """Call ``observer`` after every run of transactions that was applied together, and after
        every loaded snapshot, if there was a change of one of these kinds.

        Without ``kinds``, every run and every snapshot is reported.
        """
        self._observers.append((observer, kinds))

    def unsubscribe(self, observer: Observer) -> None:
        """Remove ``observer``. If it is its turn now, it is called once more."""
        self._observers = [one for one in self._observers if one[0] != observer]

    async def start(self) -> None:
        """Follow the log from the beginning. If the log has been compacted, a snapshot comes
        first."""
        self._task = asyncio.create_task(self._follow_safely(), name="metadata-follower")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for _, waiter in self._waiters:
            waiter.cancel()

    async def wait_for(self, offset: MetadataOffset) -> Image:
        """Return the image, once everything up to metadata offset ``offset`` is applied to it.

        Raises:
            BrokenInvariant, MetadataUnreadable: the log cannot be applied any more.
        """
        if self.failure is not None:
            raise self.failure
        if self.applied_offset < offset:
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append((offset, waiter))
            await waiter
        return self.image

    async def _follow_safely(self) -> None:
        try:
            await self._follow()
        except BrokenInvariant as broken:
            log.critical("the metadata log cannot be applied: %s", broken, exc_info=broken)
            self._fail(broken)
        except MetadataUnreadable as unreadable:
            self._fail(unreadable)

    def _fail(self, failure: BrokenInvariant | MetadataUnreadable) -> None:
        self.failure = failure
        self.has_failed.set()
        for _, waiter in self._waiters:
            if not waiter.done():
                waiter.set_exception(failure)

    async def _follow(self) -> None:
        async for event in self._quorum.watch(MetadataOffset(self.applied_offset + 1)):
            match event:
                case SnapshotLoaded(image=image):
                    self._load(image)
                case TransactionsApplied(transactions=transactions, applied_offset=applied):
                    for run in runs_of(transactions):
                        image, _, changes = apply_run(self.image, run)
                        self._advance(image, changes, run[-1][0])
                        await asyncio.sleep(0)
                    self._advance_to(applied)

    def _load(self, image: Image) -> None:
        log.info("metadata snapshot loaded at offset %d", image.offset)
        self._advance(image, changes_between(self.image, image), image.offset)
        self._advance_to(image.offset)

    def _advance(self, image: Image, changes: Changes, offset: MetadataOffset) -> None:
        if image.features is not self.image.features:
            _require_readable(image)
        self.image = image
        for observer, kinds in self._observers:
            if not kinds or any(getattr(changes, kind) for kind in kinds):
                observer(image, changes)
        self._advance_to(offset)

    def _advance_to(self, offset: MetadataOffset) -> None:
        self.applied_offset = max(self.applied_offset, offset)
        reached = [waiter for wanted, waiter in self._waiters if wanted <= self.applied_offset]
        if not reached:
            return
        self._waiters = [item for item in self._waiters if item[0] > self.applied_offset]
        for waiter in reached:
            if not waiter.done():
                waiter.set_result(None)


def _require_readable(image: Image) -> None:
    """Stop before an image of which this release may lack a part (B4)."""
    if why := why_unreadable(image, NEWEST_METADATA_VERSION):
        raise MetadataUnreadable(why)


def changes_between(before: Image, after: Image) -> Changes:
    """Return the changes between two images that need not be successive, for example after a
    snapshot."""
    return Changes(
        controller=before.controller != after.controller
        or before.controller_epoch != after.controller_epoch,
        brokers=_keys_that_differ(before.brokers, after.brokers),
        topics=_keys_that_differ(before.topics, after.topics),
        deletions=_keys_that_differ(before.deletions, after.deletions),
        reassignments=_keys_that_differ(before.reassignments, after.reassignments),
        additions=_keys_that_differ(before.additions, after.additions),
        removals=_keys_that_differ(before.removals, after.removals),
        configs=_keys_that_differ(before.configs, after.configs),
        features=_keys_that_differ(before.features, after.features),
        client_quotas=_keys_that_differ(before.client_quotas, after.client_quotas),
        scram=_keys_that_differ(before.scram, after.scram),
        tokens=_keys_that_differ(before.tokens, after.tokens),
        pipelines=_keys_that_differ(before.pipelines, after.pipelines),
        sessions=_keys_that_differ(before.sessions, after.sessions),
        acls=_keys_that_differ(before.acls, after.acls),
    )


def _keys_that_differ(
    before: "immutables.Map[K, V]", after: "immutables.Map[K, V]"
) -> frozenset[K]:
    """Return the keys that were added or removed or have another value."""
    changed = {key for key, value in after.items() if before.get(key) != value}
    return frozenset(changed.union(key for key in before if key not in after))
