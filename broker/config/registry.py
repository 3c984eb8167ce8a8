"""The keys of the schema registry, besides its listener."""

from typing import Final

from quorate.common.configuration import ConfigKey

SCHEMAS_TOPIC: Final = "_schemas"
"""The topic with the registry's records, under the name that Confluent's registry gives it."""

REGISTRY_REPLICATION_FACTOR: Final = ConfigKey(
    name="registry.topic.replication.factor",
    type=int,
    default=3,
    at_least=1,
    at_most=32_767,
    doc="The replicas of the topic _schemas, which is created with the first schema. It never gets "
    "more than there are live brokers then.",
)
