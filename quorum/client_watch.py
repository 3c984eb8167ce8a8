"""A client's watch: in order from an offset, whichever voters it takes to get there."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any, NamedTuple

import grpc

from metadata_log.codec import decode_transaction
from metadata_log.image import Image
from metadata_log.records import Transaction
from metadata_log.snapshot import decode_snapshot
from metadata_log.types import MetadataOffset
from quorate_proto.v1 import quorum_pb2 as pb
from quorum.client_directory import VoterDirectory
from quorum.peers import stub_of

log = logging.getLogger(__name__)

_PAUSE_S = 0.1

SILENCE_S = 3.0
"""Three times as long as a voter that lives is ever silent: it was stopped, or a link is cut."""


class SnapshotLoaded(NamedTuple):
    """The start was compacted away, or 0: the whole state after ``image.offset``."""

    image: Image


class TransactionsApplied(NamedTuple):
    """Transactions in order; perhaps none, where only no-ops were applied."""

    transactions: list[tuple[MetadataOffset, Transaction]]
    applied_offset: MetadataOffset
    """Everything up to here has been delivered."""


WatchEvent = SnapshotLoaded | TransactionsApplied


async def follow(directory: VoterDirectory, start: MetadataOffset) -> AsyncIterator[WatchEvent]:
    """Events without end; when a voter is lost, the next one goes on where it stopped."""
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
        except TimeoutError:
            why = f"silent for {SILENCE_S:g} s"
        attempt += 1
        log.info("watch at voter %s lost (%s); going on from %d", address, why, next_offset)
        if attempt > 1:
            await asyncio.sleep(_PAUSE_S)


async def _from_one_voter(
    directory: VoterDirectory, address: str, start: MetadataOffset
) -> AsyncIterator[WatchEvent]:
    call = stub_of(directory.channel(address)).Watch(pb.WatchRequest(from_offset=start))
    async for event in read_events(call, start):
        yield event


async def read_events(call: Any, start: MetadataOffset) -> AsyncIterator[WatchEvent]:  # noqa: ANN401 - a call of Watch, typed nowhere
    """What a voter sends on the stream of ``call``, which ends with this.

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
    while True:
        async with asyncio.timeout(SILENCE_S):
            event: Any = await call.read()
        if not isinstance(event, pb.WatchEvent):
            return
        yield event


async def decoded(
    events: AsyncIterator[pb.WatchEvent], start: MetadataOffset
) -> AsyncGenerator[WatchEvent, None]:
    """What the events of a watch from ``start`` on mean; heartbeats are left out."""
    told_offset = start - 1
    chunks: list[bytes] = []
    async for event in events:
        if event.snapshot_chunk:
            chunks.append(event.snapshot_chunk)
        elif event.snapshot_done:
            # Not on the loop: 200,000 partitions hold up everything else for 0.1 s.
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
