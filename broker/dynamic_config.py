"""Broker configuration that can be changed while brokers run: /config/brokers, over the files."""

from typing import Final

from broker.config.replication import (
    FOLLOWER_REPLICATION_THROTTLED_RATE,
    LEADER_REPLICATION_THROTTLED_RATE,
)
from metadata_log.configuration import ConfigKey, ConfigSpec, Configuration, T
from metadata_log.image import Image
from metadata_log.types import BrokerId

DYNAMIC_BROKER_SPEC: Final = ConfigSpec(
    "dynamic broker", [LEADER_REPLICATION_THROTTLED_RATE, FOLLOWER_REPLICATION_THROTTLED_RATE]
)

EVERY_BROKER: Final = ""
"""Entity name of what holds for brokers that have no value of their own."""


def broker_value(image: Image, config: Configuration, broker_id: BrokerId, key: ConfigKey[T]) -> T:
    """The value in force: the broker's own, else the one for all brokers, else its file's."""
    for entity in (str(broker_id), EVERY_BROKER):
        value = image.config("broker", entity).get(key.name)
        if value is not None:
            return key.parse(value)
    return config[key]
