"""Replication throttles as they are configured: rates by broker, replicas by topic (KIP-73)."""

from typing import NamedTuple

from broker.config.replication import (
    FOLLOWER_REPLICATION_THROTTLED_RATE,
    LEADER_REPLICATION_THROTTLED_RATE,
)
from broker.dynamic_config import LiveConfiguration
from broker.replication.throttle import Throttle, Throttles
from broker.topic_config import (
    TOPIC_FOLLOWER_THROTTLED_REPLICAS,
    TOPIC_LEADER_THROTTLED_REPLICAS,
    TopicKey,
)
from metadata_log.configuration import ConfigKey
from metadata_log.types import BrokerId, TopicPartition

EVERY_REPLICA = "*"


class Named(NamedTuple):
    """A topic's list of replicas, read: this broker's ``partitions``, None for every one."""

    value: str
    partitions: frozenset[int] | None


class ThrottleConfig:
    """One broker's throttle of one side; each list is read once per change."""

    def __init__(
        self, live: LiveConfiguration, rate_key: ConfigKey[int], replicas_key: TopicKey[str]
    ) -> None:
        self._live = live
        self._rate_key = rate_key
        self._replicas_key = replicas_key
        self._named: dict[str, Named] = {}

    def rate(self) -> int:
        """Bytes per second."""
        return self._live[self._rate_key]

    def covers(self, tp: TopicPartition) -> bool:
        """Whether this broker's replica of ``tp`` is named."""
        value = self._live.of_topic(tp.topic, self._replicas_key)
        known = self._named.get(tp.topic)
        if known is None or known.value is not value:
            known = Named(value, partitions_named(value, self._live.broker_id))
            self._named[tp.topic] = known
        return known.partitions is None or tp.partition in known.partitions


def throttles(live: LiveConfiguration) -> Throttles:
    """A broker's throttles, as they are configured now."""
    leader = ThrottleConfig(
        live, LEADER_REPLICATION_THROTTLED_RATE, TOPIC_LEADER_THROTTLED_REPLICAS
    )
    follower = ThrottleConfig(
        live, FOLLOWER_REPLICATION_THROTTLED_RATE, TOPIC_FOLLOWER_THROTTLED_REPLICAS
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
