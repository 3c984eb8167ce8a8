"""What the bench of scale simulates is a cluster in which everybody hosts as much and is told."""

import asyncio

from bench.scale import image_of, told_s
from quorate.broker.controller.channels.control_requests import hosted_by
from quorate.common.types import BrokerId


def test_every_broker_hosts_as_much_and_is_told() -> None:
    image = image_of(brokers=10, partitions=1_000)
    assert sum(len(topic.partitions) for topic in image.topics.values()) == 1_000
    for broker_id in map(BrokerId, range(1, 11)):
        assert sum(map(len, hosted_by(image, broker_id).values())) == 300
    assert 0 < asyncio.run(told_s(image)) < 10
