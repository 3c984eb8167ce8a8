"""Carries pending deletions of topics out: stop the replicas, then remove the topic (C5).

Brokers that are away are not waited for: they find out at their start that the partitions are no
longer theirs.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from broker.controller.managers import topics as topic_manager
from broker.controller.pending_work import STOP_TIMEOUT_MS, PendingWork
from metadata_log.image import Image, TopicDeletion
from metadata_log.records import Operation


class Deletions(PendingWork):
    """The deletions of one controller's tenure."""

    kind = "deletion"

    @staticmethod
    def pending(image: Image) -> Mapping[str, TopicDeletion]:
        return image.deletions

    async def prepare(self, image: Image, names: Collection[str]) -> None:
        await self.publisher.stop_leaving(image, names, STOP_TIMEOUT_MS)

    def completions(self, image: Image, names: Iterable[str]) -> Sequence[Operation]:
        return topic_manager.removals(image, self.office, names)
