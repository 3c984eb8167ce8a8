"""Subscriptions to the metrics of clients, and what they mean for one client (KIP-714). This module
is pure.

An operator writes a subscription as the configuration of a resource. All subscriptions that match a
client are one for it: their metrics together, and their shortest interval.
"""

import base64
import re
import uuid
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import crc32c

from quorate.broker.config.client_metrics_keys import (
    ALL_METRICS,
    CLIENT_METRICS,
    SUBSCRIPTION_INTERVAL_MS,
    SUBSCRIPTION_MATCH,
    SUBSCRIPTION_METRICS,
    match_patterns,
)
from quorate.common.configuration import ConfigError, ConfigKey, T, list_items
from quorate.metadata_log.image import Image

ATTRIBUTE_LENGTH_MAX: Final = 256
"""Longer attributes of clients match nothing: a regular expression may take long over them."""

_INT32_SIGN: Final = 1 << 31


def kafka_text(instance_id: uuid.UUID) -> str:
    """Return an id as Kafka's clients write it: in base64, without padding."""
    return base64.urlsafe_b64encode(instance_id.bytes).decode("ascii").rstrip("=")


class ClientAttributes(NamedTuple):
    """What ``match`` is compared with. The names of the fields are those that ``match`` uses."""

    client_instance_id: str
    client_id: str
    client_software_name: str
    client_software_version: str
    client_source_address: str
    client_source_port: str


class Subscription(NamedTuple):
    """One subscription, as it is configured."""

    metrics: frozenset[str]
    interval_ms: int
    patterns: Mapping[str, re.Pattern[str]]

    @classmethod
    def of(cls, configured: Mapping[str, str]) -> "Subscription":
        """Return the subscription that these keys configure. A stored value that is invalid here
        counts as not set: a release with other ranges may have written it.
        """
        return cls(
            frozenset(list_items(_value(configured, SUBSCRIPTION_METRICS))),
            _value(configured, SUBSCRIPTION_INTERVAL_MS),
            match_patterns(_value(configured, SUBSCRIPTION_MATCH)),
        )

    def matches(self, client: ClientAttributes) -> bool:
        return all(
            _is_matched(pattern, getattr(client, attribute))
            for attribute, pattern in self.patterns.items()
        )


class ClientSubscription(NamedTuple):
    """What one client is to push: all metrics whose names have one of the prefixes ``metrics``."""

    subscription_id: int
    metrics: tuple[str, ...]
    interval_ms: int

    def has(self, metric: str) -> bool:
        return metric.startswith(self.metrics) or self.metrics == (ALL_METRICS,)


def _value(configured: Mapping[str, str], key: ConfigKey[T]) -> T:
    assert key.default is not None
    try:
        return key.parse(configured.get(key.name, key.default))
    except ConfigError:
        return key.default


def _is_matched(pattern: re.Pattern[str], attribute: str) -> bool:
    return len(attribute) <= ATTRIBUTE_LENGTH_MAX and pattern.fullmatch(attribute) is not None


def subscriptions_of(image: Image) -> dict[str, Subscription]:
    """Return all subscriptions by their names, sorted."""
    return {
        name: Subscription.of(configured)
        for (kind, name), configured in sorted(image.configs.items())
        if kind == CLIENT_METRICS
    }


def subscription_of(
    client: ClientAttributes, instance_id: uuid.UUID, subscriptions: Iterable[Subscription]
) -> ClientSubscription:
    """Return what a client is to push. Without a subscription that matches, it pushes nothing, and
    asks again after the default interval.
    """
    matching = [one for one in subscriptions if one.matches(client)]
    metrics = frozenset(name for one in matching for name in one.metrics)
    if ALL_METRICS in metrics:
        metrics = frozenset({ALL_METRICS})
    default_ms = SUBSCRIPTION_INTERVAL_MS.default
    assert default_ms is not None
    interval_ms = min([default_ms, *(one.interval_ms for one in matching)])
    names = tuple(sorted(metrics))
    return ClientSubscription(_checksum(names, interval_ms, instance_id), names, interval_ms)


def _checksum(metrics: tuple[str, ...], interval_ms: int, instance_id: uuid.UUID) -> int:
    """Return the id of a subscription: it changes with what is subscribed to, and every broker
    comes to the same one.
    """
    text = f"[{', '.join(metrics)}]{interval_ms}".encode()
    number = instance_id.int
    folded = number ^ number >> 32 ^ number >> 64 ^ number >> 96
    checksum = (crc32c.crc32c(text) ^ folded) & 0xFFFFFFFF
    return checksum - 2 * (checksum & _INT32_SIGN)
