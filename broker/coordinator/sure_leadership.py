"""Whether a broker that leads a partition may still speak for it.

It may have been stopped, or cut off from the quorum, while another broker was elected: it does not
know, and what it remembers is old. A log refuses its writes then; what it answers from memory
nobody would refuse.
"""

from collections.abc import Callable
from typing import NamedTuple

from metadata_log.image import Image
from metadata_log.types import BrokerEpoch, BrokerId, LeaderEpoch, TopicPartition

MaySpeak = Callable[[TopicPartition, LeaderEpoch], bool]
"""Of a partition that this broker leads in that epoch, as far as its replica knows."""


class SureLeadership(NamedTuple):
    """The broker's session, and what it has seen of the metadata log.

    ``session_until_ms``: before then the quorum does not end the session, on the clock of
    ``now_ms``. ``broker_epoch``: None without a session.
    """

    broker_id: BrokerId
    now_ms: Callable[[], int]
    session_until_ms: Callable[[], int]
    broker_epoch: Callable[[], BrokerEpoch | None]
    image: Callable[[], Image]

    def may_speak(self, tp: TopicPartition, leader_epoch: LeaderEpoch) -> bool:
        """As long as its session cannot have ended, nobody else was elected without being seen to
        be; and in a new session it has seen what happened until it began.
        """
        if self.now_ms() >= self.session_until_ms():
            return False
        image = self.image()
        registered = image.brokers.get(self.broker_id)
        if registered is None or registered.epoch != self.broker_epoch():
            return False
        topic = image.topics.get(tp.topic)
        if topic is None or tp.partition >= len(topic.partitions):
            return False
        leaf = topic.partitions[tp.partition]
        if leaf.leader_epoch == leader_epoch:
            return leaf.leader == self.broker_id
        return leaf.leader_epoch < leader_epoch  # A controller's command came before the log did.
