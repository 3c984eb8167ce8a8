"""All partition logs of a broker (interface first; see the docstrings)."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from broker.log.options import LogOptions
from broker.log.partition_log import PartitionLog
from metadata_log.types import TopicIdPartition

OnFlushed = Callable[[Sequence[PartitionLog]], None]
OnFailed = Callable[[Exception], None]


class LogStore:
    """The partition logs of one broker, in one folder. Use it from the event-loop thread only."""

    logs: Mapping[TopicIdPartition, PartitionLog]
    log_may_be_lost: bool  # rule 8: a power loss under log.flush=os, or a folder that was empty
    pending_bytes: int  # appended, not yet flushed

    @classmethod
    async def open(
        cls, directory: Path, options: LogOptions, on_flushed: OnFlushed, on_failed: OnFailed
    ) -> "LogStore":
        """Recover the logs in ``directory`` (created if missing)."""
        raise NotImplementedError

    def create(self, tip: TopicIdPartition, topic: str) -> PartitionLog:
        """The log of ``tip``, created if there is none."""
        raise NotImplementedError

    async def delete(self, tip: TopicIdPartition) -> None:
        """Remove the log of ``tip``, durably; nothing to do if there is none."""
        raise NotImplementedError

    def checkpoint_high_watermarks(self, offsets: Mapping[TopicIdPartition, int]) -> None:
        """Remember high watermarks for the next start; written soon, in the background."""
        raise NotImplementedError

    async def wait_for_room(self) -> None:
        """Return once few enough bytes are pending: call it before reading more from a client."""
        raise NotImplementedError

    async def close(self) -> None:
        """Flush everything and close."""
        raise NotImplementedError
