"""The limits of a broker's partitions, as they are configured now."""

from broker.config.replication import REPLICA_LAG_TIME_MAX_MS
from broker.dynamic_config import LiveConfiguration
from broker.topic_config import TOPIC_MAX_MESSAGE_BYTES, TOPIC_MIN_INSYNC_REPLICAS


class LiveLimits:
    """For ``replication.manager``."""

    def __init__(self, live: LiveConfiguration) -> None:
        self._live = live

    def lag_time_max_ms(self) -> int:
        return self._live[REPLICA_LAG_TIME_MAX_MS]

    def min_insync_replicas(self, topic: str) -> int:
        return self._live.of_topic(topic, TOPIC_MIN_INSYNC_REPLICAS)

    def max_batch_bytes(self, topic: str) -> int:
        return self._live.of_topic(topic, TOPIC_MAX_MESSAGE_BYTES)
