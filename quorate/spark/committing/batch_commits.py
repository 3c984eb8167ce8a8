"""Commits the ranges of a batch query once all of them have been read.

Spark does not tell a batch source how a query ends. So each task reports when it has handed over
the last row of its range, and the coordinator commits when all tasks have reported. A query that
fails while it reads, or that stops reading (LIMIT), commits nothing.
"""

import logging
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from quorate.spark.errors import ClusterUnavailable
from quorate.spark.offset_ranges import OffsetRange
from quorate.spark.options.connection_options import ConnectionOptions
from quorate.spark.options.read_options import GroupCommits

if TYPE_CHECKING:
    from quorate.spark.cluster_client import ClusterClient

_ID_BYTES = 16
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SharedRange:
    """The part of a read that one task does. The object travels to the executor by pickle."""

    offsets: OffsetRange
    read_id: bytes
    number: int
    count: int


def share_ranges(ranges: Sequence[OffsetRange]) -> list[SharedRange]:
    """Number the ranges as the parts of one read."""
    read_id = secrets.token_bytes(_ID_BYTES)
    return [SharedRange(one, read_id, at, len(ranges)) for at, one in enumerate(ranges)]


def check_commits(
    cluster: "ClusterClient",
    connection: ConnectionOptions,
    commits: GroupCommits,
    ranges: Sequence[OffsetRange],
) -> None:
    """Check, before anything is read, that the ranges may be committed in the end.

    Raises:
        CallRefused: the group has live members, or the user may not read it.
        ClusterUnavailable: no coordinator answers.
    """
    from quorate.spark.committing.group_offset_committer import GroupOffsetCommitter

    partitions = {one.topic_partition: one.topic_id for one in ranges}
    GroupOffsetCommitter(cluster, commits, connection.retry_policy).check(partitions)


def report_range_read(
    cluster: "ClusterClient",
    connection: ConnectionOptions,
    commits: GroupCommits,
    done: SharedRange,
) -> None:
    """Report that a task has read its range.

    Raises:
        CallRefused: the group has live members now, or the user may no longer read it.
    """
    from quorate.spark.committing.group_offset_committer import GroupOffsetCommitter, ReachedOffset
    from quorate_proto.v1.groups_pb2 import PartOfRead

    offsets = done.offsets
    reached = ReachedOffset(offsets.topic_partition, offsets.topic_id, offsets.end)
    part = PartOfRead(read_id=done.read_id, number=done.number, count=done.count)
    group = GroupOffsetCommitter(cluster, commits, connection.retry_policy)
    try:
        group.commit_part([reached], part)
    except ClusterUnavailable as error:
        _logger.warning("%s; %s was read, and its group does not show it", error, offsets)
