"""Commits the progress of a stream to a consumer group.

The checkpoint alone decides where a stream goes on. The group only shows the progress to people and
tools. So a coordinator that does not answer never stops the stream; the commit happens later.
"""

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from quorate.common.topic_partition import TopicPartition
from quorate.spark.errors import ClusterUnavailable
from quorate.spark.options.connection_options import ConnectionOptions
from quorate.spark.options.read_options import GroupCommits
from quorate.spark.streaming.stream_checkpoint import StreamOffsets

if TYPE_CHECKING:
    from quorate.spark.committing.group_offset_committer import GroupOffsetCommitter

REFRESH_SECONDS = 3600.0
"""The interval at which all offsets are committed, moved or not, because the group forgets
offsets that nobody has committed for long (offsets.retention.minutes)."""

PAUSE_SECONDS = 30.0
"""The time without commits after no coordinator has answered, because each try delays the
stream."""

_logger = logging.getLogger(__name__)


class StreamCommits:
    """Commits the progress of one query, on its driver; close it."""

    def __init__(
        self,
        connection: ConnectionOptions,
        commits: GroupCommits,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connection = connection
        self._commits = commits
        self._monotonic = monotonic
        self._opened: GroupOffsetCommitter | None = None
        self._done: StreamOffsets | None = None
        self._committed: dict[TopicPartition, int] = {}
        self._refreshed_at = 0.0
        self._silent_until = 0.0

    def close(self) -> None:
        """Close all connections."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def check(self, offsets: StreamOffsets) -> None:
        """Ask whether these offsets could be committed.

        Raises:
            CallRefused: the group has live members, or the user may not read it or a topic.
            ClusterUnavailable: no coordinator answers.
        """
        self._group.check({one: offsets.topic_ids[one.topic] for one in offsets.offsets})

    def reached(self, done: StreamOffsets) -> None:
        """Note that everything below ``done`` was read and its results are stored; commit it.

        Raises:
            CallRefused: as in `check`.
        """
        now = self._monotonic()
        if now < self._silent_until:
            return
        is_due = now - self._refreshed_at >= REFRESH_SECONDS
        if done == self._done and not is_due:
            return
        news = {
            partition: offset
            for partition, offset in done.offsets.items()
            if is_due or self._committed.get(partition) != offset
        }
        if self._commit(done, news):
            self._done = done
            self._committed = dict(done.offsets)
            self._refreshed_at = now if is_due else self._refreshed_at

    def _commit(self, done: StreamOffsets, news: dict[TopicPartition, int]) -> bool:
        from quorate.spark.committing.group_offset_committer import ReachedOffset

        if not news:
            return True
        reached = [ReachedOffset(one, done.topic_ids[one.topic], at) for one, at in news.items()]
        try:
            self._group.commit(reached)
        except ClusterUnavailable as error:
            _logger.warning("%s; the stream goes on, and commits later", error)
            self._silent_until = self._monotonic() + PAUSE_SECONDS
            return False
        return True

    @property
    def _group(self) -> "GroupOffsetCommitter":
        if self._opened is None:
            # gRPC must not be loaded before Spark forks its workers.
            from quorate.spark.committing.group_offset_committer import GroupOffsetCommitter

            cluster = self._connection.open()
            self._opened = GroupOffsetCommitter(
                cluster, self._commits, self._connection.retry_policy
            )
        return self._opened
