"""Throttles as they are configured: by broker and topic, changed while brokers run."""

import pytest

from quorate.broker.config.dynamic_config import LiveConfiguration
from quorate.broker.config.spec import BROKER_SPEC
from quorate.broker.config.topic_keys import TOPIC_SPEC
from quorate.broker.replication.hosting.replication_throttle import (
    ReplicationThrottles,
    partitions_named,
)
from quorate.common.configuration import ConfigError
from quorate.common.types import BrokerId, TopicPartition
from quorate.metadata_log.image import Image
from quorate.metadata_log.records import ConfigSet
from tests.support.followers import ShownImage
from tests.support.metadata import MetadataLogBuilder

LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
CONFIG = BROKER_SPEC.parse({"broker.id": 1, "log.dir": "x", "quorum.bootstrap.servers": "x:1"})


class Configured:
    """Broker 1 of a cluster whose configuration changes."""

    def __init__(self) -> None:
        self.log = MetadataLogBuilder()
        self.log.start_broker(1)
        self.log.elect_controller(1)
        live = LiveConfiguration(ShownImage(self.image), CONFIG, BrokerId(1))
        self.throttles = ReplicationThrottles.configured(live)

    def image(self) -> Image:
        return self.log.image

    def change(self, entity_type: str, name: str, key: str, value: str | None) -> None:
        record = ConfigSet(entity_type=entity_type, entity_name=name, key=key, value=value)
        assert self.log.write_as_controller(record).ok

    def covered(self, topic: str) -> set[int]:
        """Partitions of the topic that are throttled at this leader."""
        covers = self.throttles.leader.covers
        return {number for number in range(4) if covers(TopicPartition(topic, number))}


def test_c11_nothing_is_throttled_until_a_rate_is_set() -> None:
    configured = Configured()
    configured.change("topic", "t", "leader.replication.throttled.replicas", "*")
    assert configured.covered("t") == set()
    configured.change("broker", "1", LEADER_RATE, "1000")
    assert configured.covered("t") == {0, 1, 2, 3}
    assert configured.covered("other") == set()
    configured.change("broker", "1", LEADER_RATE, None)
    assert configured.covered("t") == set()


def test_c11_replicas_are_named_by_partition_and_broker() -> None:
    configured = Configured()
    configured.change("broker", "", LEADER_RATE, "1000")
    configured.change("topic", "t", "leader.replication.throttled.replicas", "0:1,0:2,1:2,3:1")
    assert configured.covered("t") == {0, 3}
    configured.change("topic", "t", "leader.replication.throttled.replicas", "2:1")
    assert configured.covered("t") == {2}
    assert not configured.throttles.follower.covers(TopicPartition("t", 2)), "the other side"


@pytest.mark.parametrize("value", ["", "*", "0:1", "0:1,12:3"])
def test_c11_lists_of_replicas_are_read(value: str) -> None:
    TOPIC_SPEC.parse({"leader.replication.throttled.replicas": value})
    partitions_named(value, BrokerId(1))


@pytest.mark.parametrize("value", ["0", "0:", "0:1,", "0:1:2", "a:1", "**", "0:1,*", "-1:2", "٣:1"])
def test_c11_other_lists_are_refused(value: str) -> None:
    with pytest.raises(ConfigError, match=r"must be \* or partition:broker"):
        TOPIC_SPEC.parse({"follower.replication.throttled.replicas": value})
