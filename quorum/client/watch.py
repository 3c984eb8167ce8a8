"""A client's watch: events in order from an offset, from as many voters as it takes."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any, Final, NamedTuple

import grpc

from quorate.common.types import MetadataOffset
from quorate.metadata_log.apply import apply
from quorate.metadata_log.codec import MalformedTransaction, decode_transaction
from quorate.metadata_log.features import NEWEST_METADATA_VERSION
from quorate.metadata_log.image import Image
from quorate.metadata_log.records import Transaction
from quorate.metadata_log.snapshot.builder import InvalidSnapshot
from quorate.metadata_log.snapshot.snapshot import decode_snapshot
from quorate.quorum.client.directory import VoterDirectory
from quorate.quorum.quorum_errors import MetadataUnreadable, OffsetUnavailable
from quorate.quorum.voter_channels import stub_of
from quorate_proto.v1 import quorum_pb2 as pb

log = logging.getLogger(__name__)

_PAUSE_S = 0.1

SILENCE_S = 3.0
"""Three times as long as a living voter is ever silent that has not said otherwise. After it, the
voter is stopped, or a link is cut.
"""

HEARTBEAT_MAX_MS: Final = 2_000
"""A voter that many watch may send events as rarely as this, and says so before."""

_UNTOLD_HEARTBEAT_MS: Final = 1_000


class SnapshotLoaded(NamedTuple):
    """The whole state after ``image.offset``: the start was 0, or is compacted away."""

    image: Image


class TransactionsApplied(NamedTuple):
    """Transactions in order. There may be none, where only no-ops were applied."""

    transactions: list[tuple[MetadataOffset, Transaction]]
    applied_offset: MetadataOffset
    """Everything up to this offset has been delivered."""


WatchEvent = SnapshotLoaded | TransactionsApplied


def watch_request(
    from_offset: int = 0,
    *,
    from_oldest: bool = False,
    linearizable: bool = False,
    heartbeat_max_ms: int = 0,
) -> pb.WatchRequest:
    """Return the request of a client that reads what this release reads."""
    return pb.WatchRequest(
        from_offset=from_offset,
        from_oldest=from_oldest,
        linearizable=linearizable,
        metadata_version_max=NEWEST_METADATA_VERSION,
        heartbeat_max_ms=heartbeat_max_ms,
    )


async def follow(directory: VoterDirectory, start: MetadataOffset) -> AsyncIterator[WatchEvent]:
    """Yield events without end. When a voter is lost, the next one continues where it stopped.

    Raises:
        MetadataUnreadable: the log holds what this release cannot read.
    """
    next_offset = start
    attempt = 0
    while True:
        addresses = directory.in_order_of_preference()
        address = addresses[attempt % len(addresses)]
        try:
            async for event in _from_one_voter(directory, address, next_offset):
                attempt = 0
                if isinstance(event, SnapshotLoaded):
                    next_offset = MetadataOffset(event.image.offset + 1)
                else:
                    next_offset = MetadataOffset(max(next_offset, event.applied_offset + 1))
                yield event
            why = "it ended the watch"
        except grpc.aio.AioRpcError as error:
            why = error.details() or error.code().name
            if error.code() == grpc.StatusCode.FAILED_PRECONDITION:
                raise MetadataUnreadable(why) from error
        except TimeoutError:
            why = "silent for too long"
        attempt += 1
        log.info("watch at voter %s lost (%s); going on from %d", address, why, next_offset)
        if attempt > 1:
            await asyncio.sleep(_PAUSE_S)


async def _from_one_voter(
    directory: VoterDirectory, address: str, start: MetadataOffset
) -> AsyncIterator[WatchEvent]:
    request = watch_request(start, heartbeat_max_ms=HEARTBEAT_MAX_MS)
    call = stub_of(directory.channel(address)).Watch(request)
    async for event in read_events(call, start):
        yield event


async def read_events(call: Any, start: MetadataOffset) -> AsyncIterator[WatchEvent]:  # noqa: ANN401 - a call of Watch, typed nowhere
    """Yield what a voter sends on the stream of ``call``, which ends with this generator.

    Raises:
        grpc.aio.AioRpcError: the voter is gone.
        TimeoutError: it is silent, as no voter that lives is.
    """
    try:
        async with (
            aclosing(_received(call)) as received,
            aclosing(decoded(received, start)) as events,
        ):
            async for event in events:
                yield event
    finally:
        call.cancel()


async def _received(call: Any) -> AsyncGenerator[pb.WatchEvent, None]:  # noqa: ANN401 - as above
    patience_s = SILENCE_S
    while True:
        async with asyncio.timeout(patience_s):
            event: Any = await call.read()
        if not isinstance(event, pb.WatchEvent):
            return
        patience_s = _patience_s(event.heartbeat_ms)
        yield event


def _patience_s(heartbeat_ms: int) -> float:
    """Return the time within which another event must come after one that named this heartbeat."""
    longer_ms = min(heartbeat_ms, HEARTBEAT_MAX_MS) - _UNTOLD_HEARTBEAT_MS
    return SILENCE_S + max(0, longer_ms) / 1000


async def decoded(
    events: AsyncIterator[pb.WatchEvent], start: MetadataOffset
) -> AsyncGenerator[WatchEvent, None]:
    """Yield the decoded events of a watch from ``start`` on. Heartbeats are left out.

    Raises:
        MetadataUnreadable: the log holds what this release cannot read.
    """
    try:
        async for event in _decoded(events, start):
            yield event
    except (InvalidSnapshot, MalformedTransaction) as error:
        raise MetadataUnreadable(
            f"the quorum sent what this release cannot read, which reads metadata_version "
            f"{NEWEST_METADATA_VERSION} at most: {error}. Install the release that the quorum runs"
        ) from error


async def _decoded(
    events: AsyncIterator[pb.WatchEvent], start: MetadataOffset
) -> AsyncGenerator[WatchEvent, None]:
    told_offset = start - 1
    chunks: list[bytes] = []
    async for event in events:
        if event.snapshot_chunk:
            chunks.append(event.snapshot_chunk)
        elif event.snapshot_done:
            # In a thread: on the loop, 200,000 partitions would hold up everything else for 0.1 s.
            yield SnapshotLoaded(await asyncio.to_thread(decode_snapshot, chunks))
            told_offset = event.applied_offset
            chunks = []
        elif event.transactions or event.applied_offset > told_offset:
            told_offset = event.applied_offset
            yield TransactionsApplied(
                [
                    (MetadataOffset(item.offset), decode_transaction(item.transaction))
                    for item in event.transactions
                ],
                MetadataOffset(event.applied_offset),
            )


# The image at an offset: from the oldest state that is kept, transaction by transaction.


QUIET_S: Final = 1.5
"""This is longer than a voter needs for the next event that it has."""


async def image_at(events: AsyncIterator[WatchEvent], wanted: MetadataOffset) -> Image:
    """Return the image after ``wanted``. ``events`` come from a watch that begins at or before it.

    Raises:
        OffsetUnavailable: it begins after it, or ends before.
    """
    image = Image()
    while (event := await _next(events)) is not None:
        if isinstance(event, SnapshotLoaded):
            image = event.image
            if image.offset > wanted:
                raise OffsetUnavailable(
                    f"offset {wanted} is not kept: the oldest state is that of {image.offset}"
                )
            continue
        for offset, transaction in event.transactions:
            if offset > wanted:
                return image
            image = apply(image, offset, transaction).image
        if event.applied_offset >= wanted:
            return image
    raise OffsetUnavailable(f"offset {wanted} is not written yet: the log is at {image.offset}")


async def _next(events: AsyncIterator[WatchEvent]) -> WatchEvent | None:
    """Return the next event, or None if there is nothing more for now."""
    try:
        return await asyncio.wait_for(anext(events), QUIET_S)
    except (TimeoutError, StopAsyncIteration):
        return None
