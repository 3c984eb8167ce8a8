"""The image at an offset: from the oldest state that is kept, transaction by transaction."""

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from metadata_log.apply import apply
from metadata_log.image import Image
from metadata_log.types import MetadataOffset
from quorum.client_watch import SnapshotLoaded, WatchEvent
from quorum.errors import OffsetUnavailable

QUIET_S: Final = 1.5
"""Longer than a voter needs for the next event of what it has."""


async def image_at(events: AsyncIterator[WatchEvent], wanted: MetadataOffset) -> Image:
    """The image after ``wanted``; ``events``: of a watch that begins at or before it.

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
    """None: nothing more for now."""
    try:
        return await asyncio.wait_for(anext(events), QUIET_S)
    except (TimeoutError, StopAsyncIteration):
        return None
