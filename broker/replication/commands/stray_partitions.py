"""Local partitions that a controller or an image did not mention (C7, C10, rule 7).

They are set aside at once, so that they serve nobody. They are deleted only when the quorum proves
that this broker's assignment has ended. Otherwise an INIT made from an old image could destroy data
by leaving something out, and so could a restored quorum, which does not know what its backup did
not have, and so could one flipped bit of a topic id. What the quorum does not know is kept until an
operator decides (``quorate log strays``).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from enum import Enum
from itertools import islice
from typing import Final, Protocol

from quorate.broker.replication.hosting.hosted_partition import HostedPartition
from quorate.broker.replication.hosting.partition_table import PartitionTable
from quorate.common.types import BrokerId, MetadataOffset, TopicIdPartition
from quorate.metadata_log.image import Image
from quorate.quorum.quorum_errors import QuorumError

log = logging.getLogger(__name__)

RETRY_S = 2.0

ASKED_TOGETHER: Final = 1_000
"""The number of strays that one read of the quorum decides about."""

NAMED_MAX: Final = 5

ADVICE: Final = (
    "the quorum does not know these partitions, so their logs serve nobody and are kept: look at "
    "them with `quorate log strays list`, then restore or delete them"
)


class Assignment(Enum):
    """The assignment of a partition to this broker, as far as the quorum can prove it."""

    HOLDS = "assigned to this broker"
    ENDED = "not assigned to this broker any more"
    UNKNOWN = "not known to the quorum"


def assignment(
    image: Image, broker_id: BrokerId, tip: TopicIdPartition, assigned_at: int
) -> Assignment:
    """Return what ``image`` proves about the assignment of ``tip`` that was made at that offset.

    A deletion or removal that was accepted is never taken back, so a pending one counts. A
    partition that is there again under the same number is another one (C14).

    A restored quorum says nothing about what was made before its history began: the partition may
    be younger than the backup, and this may be the only copy. Nor does a quorum say anything about
    a topic id, a partition or an offset that it never had (rule 7).
    """
    topic = image.topic_by_id(tip.topic_id)
    if topic is None and image.deleted_topics.offset_of(tip.topic_id) is not None:
        return Assignment.ENDED
    is_older = bool(image.restored_offset) and assigned_at <= image.restored_offset
    if topic is None or is_older or assigned_at > image.offset:
        return Assignment.UNKNOWN
    has_ended = assigned_at < topic.removed_at(tip.partition)
    if not has_ended and tip.partition >= len(topic.partitions):
        return Assignment.UNKNOWN
    if has_ended or tip.partition >= image.kept(topic):
        return Assignment.ENDED
    holds = broker_id in topic.partitions[tip.partition].replicas
    return Assignment.HOLDS if holds else Assignment.ENDED


class ImageReader(Protocol):
    """The part of the metadata follower that a fresh read needs."""

    async def wait_for(self, offset: MetadataOffset) -> Image:
        """Return the image, once everything up to ``offset`` is applied to it."""


class QuorumReader(Protocol):
    """The part of the quorum client that a fresh read needs."""

    async def read_offset(self) -> MetadataOffset:
        """Return an offset that covers everything acknowledged before this call."""


class AssignmentCheck:
    """Asks the quorum which partitions are not assigned to this broker any more (rule 7)."""

    def __init__(self, broker_id: BrokerId, quorum: QuorumReader, metadata: ImageReader) -> None:
        self._broker_id = broker_id
        self._quorum = quorum
        self._metadata = metadata

    async def assignments(
        self, table: PartitionTable, tips: Sequence[TopicIdPartition]
    ) -> Mapping[TopicIdPartition, Assignment]:
        """Return what the quorum, read now, knows about those of ``tips`` that are hosted.

        Raises:
            QuorumError, TimeoutError: the quorum does not answer.
        """
        image = await self._metadata.wait_for(await self._quorum.read_offset())
        return {
            tip: assignment(image, self._broker_id, tip, hosted.log.assigned_at)
            for tip in tips
            if (hosted := table.get(tip)) is not None
        }


class StrayPartitions:
    """The partitions that are set aside, and the task that checks them."""

    def __init__(
        self,
        table: PartitionTable,
        assignments: AssignmentCheck,
        delete: Callable[[Sequence[HostedPartition]], Awaitable[None]],
    ) -> None:
        self._table = table
        self._assignments = assignments
        self._delete = delete
        self._strays: dict[TopicIdPartition, HostedPartition] = {}
        self._kept: dict[TopicIdPartition, HostedPartition] = {}
        self._check: asyncio.Task[None] | None = None

    def set_aside(self, strays: Iterable[HostedPartition]) -> None:
        """Stop serving them, and find out in the background whether they may go."""
        found = list(strays)
        if found:
            log.warning("%s: not listed, set aside", names_of(found))
        for hosted in found:
            self._strays[hosted.tip] = hosted
            self._table.run(hosted, hosted.replica.set_aside())
            hosted.leadership_changed()
        if self._strays and (self._check is None or self._check.done()):
            self._check = asyncio.create_task(self._check_all(), name="stray-partitions")

    def reclaim(self, hosted: HostedPartition) -> None:
        """Note that a command names the partition after all, or that it is gone: it is no stray."""
        self._strays.pop(hosted.tip, None)
        if self._kept.pop(hosted.tip, None) is not None:
            self._table.store.note_strays(self._kept)

    def kept(self) -> Sequence[HostedPartition]:
        """Return the partitions that the quorum does not know. Only an operator deletes them."""
        return tuple(self._kept.values())

    async def close(self) -> None:
        """Stop the check."""
        if self._check is not None:
            self._check.cancel()
            await asyncio.gather(self._check, return_exceptions=True)

    async def _check_all(self) -> None:
        while self._strays:
            asked = tuple(islice(self._strays, ASKED_TOGETHER))
            try:
                known = await self._assignments.assignments(self._table, asked)
            except (QuorumError, TimeoutError) as error:
                log.warning("%d strays wait for the quorum: %s", len(self._strays), error)
                await asyncio.sleep(RETRY_S)
                continue
            still = [self._strays.pop(tip) for tip in asked if tip in self._strays]
            of = {each: [one for one in still if known.get(one.tip) is each] for each in Assignment}
            if of[Assignment.HOLDS]:
                log.warning("%s: assigned to this broker, kept", names_of(of[Assignment.HOLDS]))
            if unknown := of[Assignment.UNKNOWN]:
                self._kept.update((hosted.tip, hosted) for hosted in unknown)
                self._table.store.note_strays(self._kept)
                log.error("%s: %s", names_of(unknown), ADVICE)
            if doomed := of[Assignment.ENDED]:
                log.info("%s: not assigned to this broker, deleting the logs", names_of(doomed))
                await self._delete(doomed)


def names_of(partitions: Sequence[HostedPartition]) -> str:
    """Return the first few by name, and how many more there are."""
    named = ", ".join(
        f"{hosted.tp} (id {hosted.tip.topic_id.hex()})" for hosted in partitions[:NAMED_MAX]
    )
    more = len(partitions) - NAMED_MAX
    return f"{named} and {more} more" if more > 0 else named
