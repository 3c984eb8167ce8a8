"""Batches of topics with a codec of their own wait here while they are compressed anew.

Recompression takes milliseconds, with gzip tens of them, so it happens off the event loop. What
comes for the same partition meanwhile waits behind it, from whatever client and with whatever
codec: batches are appended in the order in which they came, although requests of one connection
overlap.
"""

import asyncio
import dataclasses
import logging
from collections import deque
from collections.abc import Callable
from typing import Final, TypeAlias

from quorate.broker.common.errors import KafkaError
from quorate.broker.log.batches.recompression import needs_recompression, recompressed
from quorate.broker.replication.api import ProduceEntry
from quorate.broker.replication.hosting.hosted_partition import HostedPartition
from quorate.common.background_tasks import BackgroundTasks
from quorate_proto.v1 import errors_pb2

log = logging.getLogger(__name__)

AT_ONCE: Final = 2
"""The number of requests recompressed at a time: each holds its decompressed records in memory."""

Release: TypeAlias = Callable[[ProduceEntry, KafkaError | None], None]
"""A function that goes on with what the entry has become, or with the refusal of it."""

_Held: TypeAlias = tuple[ProduceEntry, Release]


class RecompressionQueue:
    """The recompression of one broker. All but the work itself happens on the event loop."""

    def __init__(self) -> None:
        self.queues: dict[HostedPartition, deque[_Held]] = {}
        """The entries that wait, by partition, in the order in which they came."""
        self._tasks = BackgroundTasks()
        self._slots = asyncio.Semaphore(AT_ONCE)

    def is_needed(self, hosted: HostedPartition, entry: ProduceEntry) -> bool:
        """Say whether ``entry`` must wait: for itself, or for what came before it."""
        codec = hosted.log.storing.codec
        if codec is None and not self.queues:
            return False
        if not entry.origin.is_client:
            return False
        return hosted in self.queues or _is_other(entry, codec)

    def hold(self, hosted: HostedPartition, entry: ProduceEntry, release: Release) -> None:
        """Have ``release`` called when the entry is recompressed, in the order of the calls."""
        queue = self.queues.get(hosted)
        if queue is not None:
            queue.append((entry, release))
            return
        queue = self.queues[hosted] = deque([(entry, release)])
        self._tasks.start(self._work(hosted, queue))

    async def close(self) -> None:
        """Refuse what waits: its producers look for another leader."""
        await self._tasks.close()

    async def _work(self, hosted: HostedPartition, queue: deque[_Held]) -> None:
        try:
            while queue:
                entry, refusal = await self._recoded(hosted, queue[0][0])
                _, release = queue.popleft()
                release(entry, refusal)
        finally:
            del self.queues[hosted]
            for entry, release in queue:
                release(entry, _stopping(entry))

    async def _recoded(
        self, hosted: HostedPartition, entry: ProduceEntry
    ) -> tuple[ProduceEntry, KafkaError | None]:
        codec = hosted.log.storing.codec
        if codec is None or not _is_other(entry, codec):
            return entry, None
        max_bytes = hosted.log.max_batch_bytes
        try:
            async with self._slots:
                records = await asyncio.to_thread(
                    recompressed, entry.records, codec, max_bytes, str(entry.tp)
                )
        except KafkaError as error:
            return entry, error
        except Exception:
            log.exception("cannot compress a batch for %s anew", entry.tp)
            message = f"a batch for {entry.tp} could not be compressed anew"
            return entry, KafkaError(errors_pb2.UNKNOWN_SERVER_ERROR, message)
        return dataclasses.replace(entry, records=records), None


def _is_other(entry: ProduceEntry, codec: int | None) -> bool:
    return codec is not None and needs_recompression(entry.records, codec)


def _stopping(entry: ProduceEntry) -> KafkaError:
    return KafkaError(errors_pb2.NOT_LEADER_OR_FOLLOWER, f"the leader of {entry.tp} is stopping")
