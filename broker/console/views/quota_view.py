"""Client quotas as people look at them: for whom they are, and what they limit. Pure."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from quorate.broker.kafka.wire.codec import Message
from quorate.metadata_log.client_quotas import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
)

ENTITY_FIELDS: Final[Mapping[str, str]] = MappingProxyType(
    {"user": "user", "client-id": "client_id", "ip": "ip"}
)
"""Kafka's entity types, and the fields of forms that name one."""

QUOTAS: Final[Mapping[str, str]] = MappingProxyType(
    {
        PRODUCER_BYTE_RATE: "bytes written per second",
        CONSUMER_BYTE_RATE: "bytes read per second",
        REQUEST_PERCENTAGE: "percent of one thread's time for requests",
        CONTROLLER_MUTATION_RATE: "partitions created or deleted per second",
        CONNECTION_CREATION_RATE: "connections opened per second, of an address",
    }
)
"""The limit that each quota sets, in words."""


def named_entity(entity: Iterable[Message]) -> str:
    """Return for whom a quota is: ``user alice, the default client-id``."""
    return ", ".join(
        f"the default {one['entity_type']}"
        if one["entity_name"] is None
        else f"{one['entity_type']} {one['entity_name']}"
        for one in entity
    )
