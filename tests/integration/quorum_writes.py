"""Writes that can be looked for later: each opens a session with an id of its own."""

import asyncio
import os

from quorate.common.types import MetadataOffset, SessionId
from quorate.metadata_log.apply import apply
from quorate.metadata_log.image import Image
from quorate.metadata_log.records import Operation, SessionOpened
from quorate.quorum.client.quorum_client import QuorumClient, SnapshotLoaded, TransactionsApplied
from quorate.quorum.quorum_errors import QuorumError
from tests.support.waiting import TIMEOUT_S, async_let_time_pass, async_wait_until

AN_HOUR_MS = 3_600_000


def new_key() -> SessionId:
    return SessionId(os.urandom(16))


def opening(key: SessionId) -> Operation:
    return Operation(records=(SessionOpened(session_id=key, timeout_ms=AN_HOUR_MS),))


async def write(client: QuorumClient, count: int = 1) -> dict[SessionId, MetadataOffset]:
    """That many concurrent transactions; key and offset of each."""
    keys = [new_key() for _ in range(count)]
    results = await asyncio.gather(*(client.transact([opening(key)]) for key in keys))
    assert all(result.ok for result in results)
    return {key: result.offset for key, result in zip(keys, results, strict=True)}


class Writer:
    """Writes as fast as it is answered, and remembers what was acknowledged, and when."""

    def __init__(self, client: QuorumClient) -> None:
        self._client = client
        self.acknowledged: dict[SessionId, MetadataOffset] = {}
        self.uncertain = 0
        self.longest_gap_s = 0.0
        self._last_s = 0.0
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def wait_for_more(self, count: int = 20, *, timeout_s: float = TIMEOUT_S) -> None:
        """Wait until so many more were acknowledged."""
        wanted = len(self.acknowledged) + count
        await async_wait_until(
            lambda: len(self.acknowledged) >= wanted, f"{wanted} writes", timeout_s=timeout_s
        )

    def reset_gap(self) -> None:
        self._last_s = asyncio.get_running_loop().time()
        self.longest_gap_s = 0.0

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        self.reset_gap()
        while True:
            key = new_key()
            try:
                result = await self._client.transact([opening(key)])
            except QuorumError:
                self.uncertain += 1
                await async_let_time_pass(0.01, "nobody leads yet")
                continue
            assert result.ok
            self.acknowledged[key] = result.offset
            now = loop.time()
            self.longest_gap_s = max(self.longest_gap_s, now - self._last_s)
            self._last_s = now


async def image_now(client: QuorumClient) -> Image:
    """The image of a moment at which everything acknowledged before is in it.

    A watch may begin with a snapshot of a while ago, and be given by a voter that lags.
    """
    wanted = await client.read_offset()
    image = Image()
    async for event in client.watch(MetadataOffset(0)):
        if isinstance(event, SnapshotLoaded):
            image, reached = event.image, event.image.offset
        else:
            for offset, transaction in event.transactions:
                image = apply(image, offset, transaction).image
            reached = event.applied_offset
        if reached >= wanted:
            break
    return image


async def applied_from(
    client: QuorumClient, start: MetadataOffset, up_to: MetadataOffset
) -> list[MetadataOffset]:
    """Offsets that a watch delivers, until everything up to ``up_to`` is."""
    offsets: list[MetadataOffset] = []
    async for event in client.watch(start):
        assert isinstance(event, TransactionsApplied)
        offsets += [offset for offset, _ in event.transactions]
        if event.applied_offset >= up_to:
            break
    return offsets
