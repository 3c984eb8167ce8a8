"""Stops leaders here that the metadata log has deposed, where the controller cannot tell them.

A broker learns leadership from control requests. But where the links between it and the others are
cut, it still sees the quorum, and would go on serving in leader epochs that are over: nothing that
it appends could be committed, and its producers would wait for their whole timeout. So while other
brokers are not heard, a leader that finds a newer epoch in the image steps down if no request comes
for a while (rule 6). The image alone never makes a replica lead or follow.

A broker that is cut off from the quorum alone sees no newer image, and no controller tells a broker
whose session has ended. But its followers leave it for the new leader. So once its session may have
ended, it sends waiting producers away where too few of the ISR still fetch. It goes on leading: if
the quorum is away as a whole, the followers may come back (rule 6).
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
from quorate_proto.v1 import errors_pb2

log = logging.getLogger(__name__)

LOOKS_PER_LIMIT: Final = 10
"""The looks in the time for which a broker may be silent. A control request comes between two of
them if the controller reaches this broker."""


class ImageReader(Protocol):
    """Has the newest image."""

    @property
    def image(self) -> Image: ...


class SessionLife(Protocol):
    """Knows until when the session of this broker cannot have ended."""

    @property
    def last_keep_alive_ms(self) -> float: ...

    @property
    def session_timeout_ms(self) -> int: ...


class DeposedLeaders:
    """Compares what is led here with the image, while other brokers are silent."""

    def __init__(
        self,
        table: PartitionTable,
        metadata: ImageReader,
        session: SessionLife,
        limits: PartitionLimits,
    ) -> None:
        self._table = table
        self._metadata = metadata
        self._session = session
        self._limits = limits
        self._suspects: dict[TopicIdPartition, LeaderEpoch] = {}
        self._left_alone: set[TopicIdPartition] = set()

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await asyncio.sleep(self._limits.silence_max_ms() / LOOKS_PER_LIMIT / 1000)
            try:
                self.look()
            except Exception:
                log.exception("a look at the leaders here failed; the next one follows")

    def look(self) -> None:
        """Act on what was so at the last look, too."""
        self._step_down()
        self._send_producers_away()

    def _step_down(self) -> None:
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
        """Yield what is led here, or was until a moment ago, and has a newer epoch in the image."""
        image = self._metadata.image
        for hosted in self._table:
            waits = hosted.replica.is_suspended and len(hosted.waiting_for_commit) > 0
            is_looked_up = hosted.leads or waits
            topic = image.topic_by_id(hosted.tip.topic_id) if is_looked_up else None
            if topic is None or hosted.tip.partition >= len(topic.partitions):
                continue
            told = topic.partitions[hosted.tip.partition]
            if told.leader_epoch > hosted.replica.leader_epoch:
                yield hosted, told.leader, told.leader_epoch

    def _send_producers_away(self) -> None:
        """Fail what waits for followers that have left, if another broker may lead by now."""
        before, self._left_alone = self._left_alone, set()
        session = self._session
        ends_ms = session.last_keep_alive_ms + session.session_timeout_ms
        if self._table.clock.now_ms() < ends_ms:
            return
        for hosted in self._table:
            if not (hosted.leads and len(hosted.waiting_for_commit) and _is_left_alone(hosted)):
                continue
            self._left_alone.add(hosted.tip)
            if hosted.tip in before:
                message = (
                    f"the session of this broker may have ended, and followers of {hosted.tp} left"
                )
                hosted.fail_produces(errors_pb2.NOT_LEADER_OR_FOLLOWER, message)


def _is_left_alone(hosted: HostedPartition) -> bool:
    """Return whether fewer members of the ISR fetch than acks=all needs."""
    replica = hosted.replica
    found = (watcher.log_start_of(hosted) for watcher in hosted.watchers)
    fetching = {one[0] for one in found if one is not None}
    own = 1
    return own + len(fetching.intersection(replica.isr.committed)) < (
        replica.effective_min_insync_replicas
    )
