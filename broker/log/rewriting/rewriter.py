"""Rewrites batches: copies them out of a segment that is to be deleted, or replaces them by smaller
ones."""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from quorate.broker.log.batches.record_batch import Batch
from quorate.broker.log.segments.batch_index import PlacedBatch
from quorate.broker.log.stored.relocation import Relocation
from quorate.broker.log.stored.stored_log import StoredLog
from quorate.broker.log.writing.log_writer import LogWriter


class Rewrite(NamedTuple):
    """The replacement of ``old``, successive batches of a log in sealed segments, by ``new``.

    Each new batch begins where an old one begins and ends where an old one ends. Together they span
    the same offsets. Their bytes are stored unchanged.
    """

    log: StoredLog
    old: Sequence[PlacedBatch]
    new: Sequence[Batch]


class Rewriter:
    """Has batches of logs replaced, one request at a time.

    Truncations of a log wait until its rewrites are done. Otherwise a longer old batch could
    reappear where a shorter new one was truncated.
    """

    def __init__(self, writer: LogWriter) -> None:
        self._writer = writer
        self._turn = asyncio.Lock()

    async def rewrite(self, rewrites: Sequence[Rewrite]) -> list[bool]:
        """Return for each rewrite whether it was done. It is not done if its log no longer has the
        batches to replace.

        Completed rewrites are durable on return. Once a rewrite of a log is not done, the later
        ones of the same log are not done either.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
            ValueError: The new batches do not span the same offsets as the old ones, see
                ``Rewrite``.
        """
        async with self._turn:
            works = _begun(rewrites)
            submitted: list[asyncio.Future[None]] = []
            for each, work in zip(rewrites, works, strict=True):
                if work is not None:
                    rewriting = self._writer.submit(work)
                    each.log.note_rewriting(rewriting)
                    submitted.append(rewriting)
            if submitted:
                await asyncio.wait(submitted)
            for done in submitted:
                done.result()
        return [work is not None and work.is_done for work in works]


def _begun(rewrites: Sequence[Rewrite]) -> list[Relocation | None]:
    """Return the relocation of each rewrite. Once a rewrite of a log has none, the later ones of
    that log have none either."""
    works: list[Relocation | None] = []
    halted: set[int] = set()
    for each in rewrites:
        number = each.log.number
        work = None if number in halted else each.log.begin_rewrite(each.old, each.new)
        if work is None:
            halted.add(number)
        works.append(work)
    return works
