"""Replication throttles as they are configured: rates by broker, replicas by topic (KIP-73)."""

from collections.abc import Callable

from broker.config.replication import (
    FOLLOWER_REPLICATION_THROTTLED_RATE,
    LEADER_REPLICATION_THROTTLED_RATE,
)
from broker.dynamic_config import broker_value
from broker.replication.throttle import Throttle, Throttles
from broker.topic_config import (
    TOPIC_FOLLOWER_THROTTLED_REPLICAS,
    TOPIC_LEADER_THROTTLED_REPLICAS,
    TopicKey,
    topic_value,
)
from metadata_log.configuration import ConfigKey, Configuration
from metadata_log.image import Image
from metadata_log.types import BrokerId, TopicPartition

EVERY_REPLICA = "*"


class ThrottleConfig:
    """One broker's throttle of one side, read from the newest image; parsed once per change."""

    def __init__(
        self,
        image: Callable[[], Image],
        config: Configuration,
        broker_id: BrokerId,
        rate_key: ConfigKey[int],
        replicas_key: TopicKey,
    ) -> None:
        self._image = image
        self._config = config
        self._broker_id = broker_id
        self._rate_key = rate_key
        self._replicas_key = replicas_key
        self._configs: object = None
        self._rate = 0
        self._named: dict[str, frozenset[int] | None] = {}

    def rate(self) -> int:
        """Bytes per second."""
        self._refresh()
        return self._rate

    def covers(self, tp: TopicPartition) -> bool:
        """Whether this broker's replica of ``tp`` is named."""
        image = self._refresh()
        if tp.topic not in self._named:
            value = topic_value(image, self._config, tp.topic, self._replicas_key)
            self._named[tp.topic] = partitions_named(value, self._broker_id)
        named = self._named[tp.topic]
        return named is None or tp.partition in named

    def _refresh(self) -> Image:
        image = self._image()
        if image.configs is not self._configs:
            self._configs = image.configs
            self._named.clear()
            self._rate = broker_value(image, self._config, self._broker_id, self._rate_key)
        return image


def throttles(image: Callable[[], Image], config: Configuration, broker_id: BrokerId) -> Throttles:
    """A broker's throttles, as the newest image configures them."""
    leader = ThrottleConfig(
        image,
        config,
        broker_id,
        LEADER_REPLICATION_THROTTLED_RATE,
        TOPIC_LEADER_THROTTLED_REPLICAS,
    )
    follower = ThrottleConfig(
        image,
        config,
        broker_id,
        FOLLOWER_REPLICATION_THROTTLED_RATE,
        TOPIC_FOLLOWER_THROTTLED_REPLICAS,
    )
    return Throttles(
        leader=Throttle(leader.rate, leader.covers),
        follower=Throttle(follower.rate, follower.covers),
    )


def partitions_named(value: str, broker_id: BrokerId) -> frozenset[int] | None:
    """Partitions whose replica on ``broker_id`` is named in ``0:1,0:2,1:1``; None: every one."""
    if value == EVERY_REPLICA:
        return None
    pairs = (pair.split(":") for pair in value.split(",") if pair)
    return frozenset(int(partition) for partition, broker in pairs if int(broker) == broker_id)
