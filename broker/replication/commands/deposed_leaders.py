"""Stops leaders here that the metadata log has deposed, where the controller cannot tell them.

A broker learns leadership from control requests. But where the links between it and the others are
cut, it still sees the quorum, and would go on serving in leader epochs that are over: nothing that
it appends could be committed, and its producers would wait for their whole timeout. So while other
brokers are not heard, a leader that finds a newer epoch in the image steps down if no request comes
for a while (rule 6). The image alone never makes a replica lead or follow.
"""

import asyncio
import logging
from collections.abc import Iterator
from typing import Final, Protocol

from quorate.broker.replication.hosting.hosted_partition import HostedPartition
from quorate.broker.replication.hosting.partition_limits import PartitionLimits
from quorate.broker.replication.hosting.partition_table import PartitionTable
from quorate.common.types import BrokerId, LeaderEpoch, TopicIdPartition
from quorate.metadata_log.image import Image

log = logging.getLogger(__name__)

LOOKS_PER_LIMIT: Final = 10
"""The looks in the time for which a broker may be silent. A control request comes between two of
them if the controller reaches this broker."""


class ImageReader(Protocol):
    """Has the newest image."""

    @property
    def image(self) -> Image: ...


class DeposedLeaders:
    """Compares what is led here with the image, while other brokers are silent."""

    def __init__(
        self, table: PartitionTable, metadata: ImageReader, limits: PartitionLimits
    ) -> None:
        self._limits = limits
        self._table = table
        self._metadata = metadata
        self._suspects: dict[TopicIdPartition, LeaderEpoch] = {}

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await asyncio.sleep(self._limits.silence_max_ms() / LOOKS_PER_LIMIT / 1000)
            try:
                self.look()
            except Exception:
                log.exception("a look at the leaders here failed; the next one follows")

    def look(self) -> None:
        """Step down from what was led in an older epoch at the last look, too."""
        before, self._suspects = self._suspects, {}
        if not self._table.silent_peers():
            return
        deposed = 0
        for hosted, leader, epoch in self._led_by_others():
            if before.get(hosted.tip) == epoch:
                self._table.run(hosted, hosted.replica.deposed(leader, epoch))
                deposed += 1
            else:
                self._suspects[hosted.tip] = epoch
        if deposed:
            log.warning("%d partitions are led by others, and no controller has said so", deposed)

    def _led_by_others(self) -> Iterator[tuple[HostedPartition, BrokerId, LeaderEpoch]]:
        """Yield the partitions led here that have a newer epoch in the image, and whose it is."""
        image = self._metadata.image
        for hosted in self._table:
            topic = image.topic_by_id(hosted.tip.topic_id) if hosted.leads else None
            if topic is None or hosted.tip.partition >= len(topic.partitions):
                continue
            told = topic.partitions[hosted.tip.partition]
            if told.leader_epoch > hosted.replica.leader_epoch:
                yield hosted, told.leader, told.leader_epoch
