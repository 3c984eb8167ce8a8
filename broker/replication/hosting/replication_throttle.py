"""Replication throttles: how fast the replicas that are being moved are copied (C11, KIP-73).

Only the replicas that the configuration names are throttled, and only while they are not in sync:
what holds up the high watermark is never slowed down. A broker has one throttle for what it sends
as a leader and one for what it takes in as a follower. Rates are configured by broker, replicas by
topic.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from quorate.broker.config.dynamic_config import LiveConfiguration
from quorate.broker.config.replication import (
    FOLLOWER_REPLICATION_THROTTLED_RATE,
    LEADER_REPLICATION_THROTTLED_RATE,
    REPLICA_ALTER_LOG_DIRS_IO_MAX_BYTES_PER_SECOND,
)
from quorate.broker.config.topic_keys import (
    TOPIC_FOLLOWER_THROTTLED_REPLICAS,
    TOPIC_LEADER_THROTTLED_REPLICAS,
    TopicKey,
)
from quorate.common.configuration import ConfigKey
from quorate.common.types import BrokerId, TopicPartition

UNLIMITED: Final = (1 << 63) - 1

BURST_MS: Final = 1_000
"""After a pause, as many bytes as this time allows may go through at once."""

RECHECK_MS: Final = 1_000
"""A replica that has to wait longer asks again after this: the rate may have changed."""

EVERY_REPLICA: Final = "*"


class ReplicaList(NamedTuple):
    """A topic's list of throttled replicas, parsed.

    ``partitions`` are those whose replica on this broker is named, or None if every one is.
    """

    value: str
    partitions: frozenset[int] | None


class ThrottleConfig:
    """The configuration of one side of a broker; each list is parsed once per change."""

    def __init__(
        self, live: LiveConfiguration, rate_key: ConfigKey[int], replicas_key: TopicKey[str]
    ) -> None:
        self._live = live
        self._rate_key = rate_key
        self._replicas_key = replicas_key
        self._lists: dict[str, ReplicaList] = {}

    def rate(self) -> int:
        """Return the rate in bytes per second."""
        return self._live[self._rate_key]

    def covers(self, tp: TopicPartition) -> bool:
        """Say whether this broker's replica of ``tp`` is named."""
        value = self._live.of_topic(tp.topic, self._replicas_key)
        known = self._lists.get(tp.topic)
        if known is None or known.value is not value:
            known = ReplicaList(value, partitions_named(value, self._live.broker_id))
            self._lists[tp.topic] = known
        return known.partitions is None or tp.partition in known.partitions


class ReplicationThrottle:
    """A token bucket over the bytes of throttled replicas; it may go into debt by one answer.

    It reads the rate each time, because the rate is a dynamic configuration.
    """

    def __init__(self, config: ThrottleConfig) -> None:
        self._config = config
        self._tokens = 0.0
        self._filled_ms: int | None = None

    @property
    def is_limited(self) -> bool:
        """Whether there is a rate: without one nothing is throttled.

        It is the same for all partitions of a frame, so that no partition has to be looked up.
        """
        return self._config.rate() < UNLIMITED

    def covers(self, tp: TopicPartition) -> bool:
        """Say whether the replica of ``tp`` is throttled, as long as it is not in sync."""
        return self.is_limited and self._config.covers(tp)

    @property
    def at_once_bytes(self) -> int:
        """The most bytes that one answer should have of a throttled replica.

        It is what the rate allows in the time of a burst, so that a short log is not copied as a
        whole before the rate counts. A batch that is larger is sent nevertheless.
        """
        return max(1, self._config.rate() * BURST_MS // 1_000)

    def take(self, size: int, now_ms: int) -> None:
        """Count ``size`` bytes of a throttled replica that went through."""
        self._fill(now_ms)
        self._tokens -= size

    def wait_ms(self, now_ms: int) -> int:
        """Return how long throttled replicas have to wait; 0 means not at all."""
        self._fill(now_ms)
        if self._tokens >= 0:
            return 0
        rate = self._config.rate()
        return min(RECHECK_MS, 1 + int(-self._tokens * 1_000 / rate)) if rate else RECHECK_MS

    def _fill(self, now_ms: int) -> None:
        rate = self._config.rate()
        if self._filled_ms is None or rate >= UNLIMITED:
            self._tokens = 0.0
        else:
            passed_ms = now_ms - self._filled_ms
            most = rate * BURST_MS / 1_000
            self._tokens = min(most, self._tokens + passed_ms * rate / 1_000)
        self._filled_ms = now_ms


class ReplicationThrottles(NamedTuple):
    """The throttle of what a broker sends as a leader, and of what it takes as a follower."""

    leader: ReplicationThrottle
    follower: ReplicationThrottle
    move_rate: Callable[[], int] = lambda: UNLIMITED
    """Returns how many bytes per second moves between log folders may copy (KIP-113)."""

    @classmethod
    def configured(cls, live: LiveConfiguration) -> "ReplicationThrottles":
        """Return a broker's throttles, which follow its configuration."""
        leader = ThrottleConfig(
            live, LEADER_REPLICATION_THROTTLED_RATE, TOPIC_LEADER_THROTTLED_REPLICAS
        )
        follower = ThrottleConfig(
            live, FOLLOWER_REPLICATION_THROTTLED_RATE, TOPIC_FOLLOWER_THROTTLED_REPLICAS
        )
        return cls(
            ReplicationThrottle(leader),
            ReplicationThrottle(follower),
            lambda: live[REPLICA_ALTER_LOG_DIRS_IO_MAX_BYTES_PER_SECOND],
        )


def partitions_named(value: str, broker_id: BrokerId) -> frozenset[int] | None:
    """Return the partitions whose replica on ``broker_id`` is named in ``0:1,0:2,1:1``.

    None means every partition.
    """
    if value == EVERY_REPLICA:
        return None
    pairs = (pair.split(":") for pair in value.split(",") if pair)
    return frozenset(int(partition) for partition, broker in pairs if int(broker) == broker_id)
