"""Batches of topics with a codec of their own wait here while they are compressed anew.

It takes milliseconds, of gzip tens of them, so it is done off the event loop. What comes for the
same partition meanwhile waits behind, whoever sent it and whatever its codec: batches are appended
in the order in which they came, though requests of one connection overlap.
"""

import asyncio
import dataclasses
import logging
from collections import deque
from collections.abc import Callable
from typing import Final, TypeAlias

from broker.background_tasks import BackgroundTasks
from broker.errors import KafkaError
from broker.log.recoding import needs_recoding, recoded
from broker.replication.api import ProduceEntry
from broker.replication.hosted import HostedPartition
from quorate_proto.v1 import errors_pb2

log = logging.getLogger(__name__)

AT_ONCE: Final = 2
"""Requests that are compressed anew at a time: each takes memory for its records decompressed."""

Release: TypeAlias = Callable[[ProduceEntry, KafkaError | None], None]
"""Goes on with what the entry has become, or tells why not."""

_Held: TypeAlias = tuple[ProduceEntry, Release]


class Recoding:
    """Of one broker. On the event loop, but for the work itself."""

    def __init__(self) -> None:
        self._queues: dict[HostedPartition, deque[_Held]] = {}
        self._tasks = BackgroundTasks()
        self._slots = asyncio.Semaphore(AT_ONCE)

    def is_needed(self, hosted: HostedPartition, entry: ProduceEntry) -> bool:
        """Whether ``entry`` must be held: for itself, or for who came before it."""
        codec = hosted.log.storing.codec
        if codec is None and not self._queues:
            return False
        if not entry.origin.is_client:
            return False
        return hosted in self._queues or _is_other(entry, codec)

    def hold(self, hosted: HostedPartition, entry: ProduceEntry, release: Release) -> None:
        """Have ``release`` called, in the order of the calls."""
        queue = self._queues.get(hosted)
        if queue is not None:
            queue.append((entry, release))
            return
        queue = self._queues[hosted] = deque([(entry, release)])
        self._tasks.start(self._work(hosted, queue))

    async def close(self) -> None:
        """Whoever waits looks for another leader."""
        await self._tasks.close()

    async def _work(self, hosted: HostedPartition, queue: deque[_Held]) -> None:
        try:
            while queue:
                entry, refusal = await self._recoded(hosted, queue[0][0])
                _, release = queue.popleft()
                release(entry, refusal)
        finally:
            del self._queues[hosted]
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
                    recoded, entry.records, codec, max_bytes, str(entry.tp)
                )
        except KafkaError as error:
            return entry, error
        except Exception:
            log.exception("cannot compress a batch for %s anew", entry.tp)
            message = f"a batch for {entry.tp} could not be compressed anew"
            return entry, KafkaError(errors_pb2.UNKNOWN_SERVER_ERROR, message)
        return dataclasses.replace(entry, records=records), None


def _is_other(entry: ProduceEntry, codec: int | None) -> bool:
    return codec is not None and needs_recoding(entry.records, codec)


def _stopping(entry: ProduceEntry) -> KafkaError:
    return KafkaError(errors_pb2.NOT_LEADER_OR_FOLLOWER, f"the leader of {entry.tp} is stopping")
