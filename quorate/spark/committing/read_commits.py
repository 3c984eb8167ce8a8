"""A batch query whose ranges are committed once all of them were read.

Spark tells a batch source nothing of what becomes of a query. So each task says when it has handed
over the last row of its range, and the coordinator commits when all tasks have. A query that fails
while it reads, or that stops reading (LIMIT), commits nothing.
"""

import logging
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from quorate.spark.errors import ClusterUnavailable
from quorate.spark.options.connection import Connection
from quorate.spark.options.group_commits import GroupCommits
from quorate.spark.ranges import OffsetRange

if TYPE_CHECKING:
    from quorate.spark.cluster import ClusterClient

_ID_BYTES = 16
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SharedRange:
    """One task's part of a read; travels to it by pickle."""

    offsets: OffsetRange
    read_id: bytes
    number: int
    count: int


def share(ranges: Sequence[OffsetRange]) -> list[SharedRange]:
    """The parts of one read."""
    read_id = secrets.token_bytes(_ID_BYTES)
    return [SharedRange(one, read_id, at, len(ranges)) for at, one in enumerate(ranges)]


def check_commits(
    cluster: "ClusterClient",
    connection: Connection,
    commits: GroupCommits,
    ranges: Sequence[OffsetRange],
) -> None:
    """Refuse before anything is read what could not be committed in the end.

    Raises:
        CallRefused: the group has live members, or we may not read it.
        ClusterUnavailable: nobody answers.
    """
    from quorate.spark.committing.group_offsets import GroupOffsets

    partitions = {one.topic_partition: one.topic_id for one in ranges}
    GroupOffsets(cluster, commits, connection.new_retries).check(partitions)


def report(
    cluster: "ClusterClient", connection: Connection, commits: GroupCommits, done: SharedRange
) -> None:
    """A task has read its range.

    Raises:
        CallRefused: the group has live members by now, or we may no longer read it.
    """
    from quorate.spark.committing.group_offsets import GroupOffsets, Reached
    from quorate_proto.v1.groups_pb2 import PartOfRead

    offsets = done.offsets
    reached = Reached(offsets.topic_partition, offsets.topic_id, offsets.end)
    part = PartOfRead(read_id=done.read_id, number=done.number, count=done.count)
    group = GroupOffsets(cluster, commits, connection.new_retries)
    try:
        group.commit_part([reached], part)
    except ClusterUnavailable as error:
        _logger.warning("%s; %s was read, and its group does not show it", error, offsets)
