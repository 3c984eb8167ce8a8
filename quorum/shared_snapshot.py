"""One encoding of the image for all watchers who need a snapshot at about the same time.

Encoding 200,000 partitions takes 0.1 s, and after a restart every broker of a cluster may ask.
"""

import asyncio
from typing import NamedTuple

from metadata_log.image import Image
from metadata_log.snapshot import encode_snapshot
from metadata_log.types import MetadataOffset

REUSE_S = 1.0
CHUNK_BYTES = 64 << 10
"""Some 7,000 partitions: for the few milliseconds they take the event loop does nothing else."""


class EncodedSnapshot(NamedTuple):
    """The state after ``offset``; nothing but no-ops lies between that and ``next_offset``."""

    offset: MetadataOffset
    next_offset: MetadataOffset
    chunks: list[bytes]


class SharedSnapshot:
    """Keeps the last encoding for ``REUSE_S``. On the event loop."""

    def __init__(self) -> None:
        self._next_offset = MetadataOffset(0)
        self._encoding: asyncio.Task[EncodedSnapshot] | None = None

    async def of(
        self,
        image: Image,
        applied_offset: MetadataOffset,
        retained_from: MetadataOffset,
        at_least: MetadataOffset,
    ) -> EncodedSnapshot:
        """A snapshot of ``image``, or of a little earlier if what came since is still retained.

        Never of earlier than ``at_least``, which is applied.
        """
        needed_from = max(retained_from, at_least + 1)
        if self._encoding is None or self._next_offset < needed_from:
            self._next_offset = MetadataOffset(applied_offset + 1)
            self._encoding = asyncio.create_task(
                _encode(image, self._next_offset), name="watch-snapshot"
            )
            self._encoding.add_done_callback(self._keep_for_a_while)
        # Shared: one watcher that goes away must not take it along.
        return await asyncio.shield(self._encoding)

    def _keep_for_a_while(self, encoding: "asyncio.Task[EncodedSnapshot]") -> None:
        def forget() -> None:
            if self._encoding is encoding:
                self._encoding = None

        encoding.get_loop().call_later(REUSE_S, forget)


async def _encode(image: Image, next_offset: MetadataOffset) -> EncodedSnapshot:
    chunks = []
    for chunk in encode_snapshot(image, CHUNK_BYTES):
        chunks.append(chunk)
        await asyncio.sleep(0)
    return EncodedSnapshot(image.offset, next_offset, chunks)
