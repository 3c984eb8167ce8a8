"""Decides whether a broker that leads a partition may still answer for it from memory.

The broker may have been paused, or cut off from the quorum, while another broker was elected. It
does not know this, and its memory is old. The log would refuse its writes, but nothing would refuse
an answer from memory.
"""

from collections.abc import Callable
from typing import NamedTuple

from quorate.broker.common.broker_identity import BrokerIdentity
from quorate.broker.control.ports import Quorum
from quorate.broker.metadata.metadata_follower import MetadataFollower
from quorate.common.types import LeaderEpoch, TopicPartition


class CoordinatorLease(NamedTuple):
    """The broker's session, and what it has seen of the metadata log.

    ``now_ms`` is the clock by which the quorum client remembers its last answered keep-alive. The
    quorum does not end the session before ``session_timeout_ms`` have passed since then.
    """

    identity: BrokerIdentity
    now_ms: Callable[[], int]
    quorum: Quorum
    images: MetadataFollower

    def session_time_ms(self) -> int:
        """Return a time that goes on only while the broker's session certainly lasts.

        A coordinator refuses its clients while the session is in doubt. What it allows them, such
        as the time between two heartbeats, must not run out meanwhile.
        """
        now_ms = self.now_ms()
        return now_ms - self.quorum.session_doubt_ms(now_ms)

    def is_valid(self, tp: TopicPartition, leader_epoch: LeaderEpoch) -> bool:
        """Return whether no other broker can have become the leader.

        While its session cannot have ended, no other broker was elected without this broker seeing
        it. In a new session, it has seen everything that happened until the session began.
        """
        if self.now_ms() >= self.quorum.last_keep_alive_ms + self.quorum.session_timeout_ms:
            return False
        image = self.images.image
        registered = image.brokers.get(self.identity.broker_id)
        if registered is None or registered.epoch != self.identity.epoch:
            return False
        topic = image.topics.get(tp.topic)
        if topic is None or tp.partition >= len(topic.partitions):
            return False
        leaf = topic.partitions[tp.partition]
        if leaf.leader_epoch == leader_epoch:
            return leaf.leader == self.identity.broker_id
        return leaf.leader_epoch < leader_epoch  # A controller's command came before the log did.
