"""What a stream has done, as its consumer group is to show it.

The checkpoint is the account of a stream; the group is for those who look. So a coordinator that
does not answer stops no stream: it is told the next time.
"""

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from quorate.spark.errors import ClusterUnavailable
from quorate.spark.options.connection import Connection
from quorate.spark.options.group_commits import GroupCommits
from quorate.spark.ranges import TopicPartition
from quorate.spark.streaming.checkpoint import StreamOffsets

if TYPE_CHECKING:
    from quorate.spark.committing.group_offsets import GroupOffsets

REFRESH_SECONDS = 3600.0
"""How often all offsets are committed though they have not moved: the group forgets what nobody
has committed for long (offsets.retention.minutes)."""

PAUSE_SECONDS = 30.0
"""How long nothing is committed after nobody has answered: each try holds the stream up."""

_logger = logging.getLogger(__name__)


class StreamCommits:
    """Of one query, on its driver; close it."""

    def __init__(
        self,
        connection: Connection,
        commits: GroupCommits,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connection = connection
        self._commits = commits
        self._monotonic = monotonic
        self._opened: GroupOffsets | None = None
        self._close: Callable[[], None] = lambda: None
        self._done: StreamOffsets | None = None
        self._told: dict[TopicPartition, int] = {}
        self._told_at = 0.0
        self._silent_until = 0.0

    def close(self) -> None:
        """Close all connections."""
        self._close()
        self._opened, self._close = None, lambda: None

    def check(self, offsets: StreamOffsets) -> None:
        """Whether these could be committed.

        Raises:
            CallRefused: the group has live members, or we may not read it or a topic.
            ClusterUnavailable: nobody answers.
        """
        self._group.check({one: offsets.topic_ids[one.topic] for one in offsets.offsets})

    def reached(self, done: StreamOffsets) -> None:
        """Everything below ``done`` was read, and what became of it is in place.

        Raises:
            CallRefused: as `check`.
        """
        now = self._monotonic()
        if now < self._silent_until:
            return
        is_due = now - self._told_at >= REFRESH_SECONDS
        if done == self._done and not is_due:
            return
        news = {
            partition: offset
            for partition, offset in done.offsets.items()
            if is_due or self._told.get(partition) != offset
        }
        if self._tell(done, news):
            self._done = done
            self._told = dict(done.offsets)
            self._told_at = now if is_due else self._told_at

    def _tell(self, done: StreamOffsets, news: dict[TopicPartition, int]) -> bool:
        from quorate.spark.committing.group_offsets import Reached

        if not news:
            return True
        reached = [Reached(one, done.topic_ids[one.topic], at) for one, at in news.items()]
        try:
            self._group.commit(reached)
        except ClusterUnavailable as error:
            _logger.warning("%s; the stream goes on, and commits later", error)
            self._silent_until = self._monotonic() + PAUSE_SECONDS
            return False
        return True

    @property
    def _group(self) -> "GroupOffsets":
        if self._opened is None:
            # gRPC must not be loaded before Spark forks its workers.
            from quorate.spark.committing.group_offsets import GroupOffsets

            cluster = self._connection.open()
            self._close = cluster.close
            self._opened = GroupOffsets(cluster, self._commits, self._connection.new_retries)
        return self._opened
