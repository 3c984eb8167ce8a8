"""The configuration keys of groups (KIP-848), with Kafka's names.

A group need not exist to be configured. Groups of the classic protocol do not use these keys: their
members name their own timeouts. A key that a group does not set has the value of the broker's key,
whose limits are the broker's as well, and hold for groups.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from quorate.broker.config.consumer_groups import (
    GROUP_CONSUMER_ASSIGNMENT_INTERVAL_MS,
    GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS,
    GROUP_CONSUMER_MAX_ASSIGNMENT_INTERVAL_MS,
    GROUP_CONSUMER_MAX_HEARTBEAT_INTERVAL_MS,
    GROUP_CONSUMER_MAX_SESSION_TIMEOUT_MS,
    GROUP_CONSUMER_MIN_ASSIGNMENT_INTERVAL_MS,
    GROUP_CONSUMER_MIN_HEARTBEAT_INTERVAL_MS,
    GROUP_CONSUMER_MIN_SESSION_TIMEOUT_MS,
    GROUP_CONSUMER_SESSION_TIMEOUT_MS,
)
from quorate.common.configuration import ConfigError, ConfigKey, ConfigSpec, Update, Values

GROUP: Final = "group"
"""The entity type of groups in the metadata log."""

_INT_MAX: Final = 2**31 - 1


class GroupKey(NamedTuple):
    """A key of groups, with the broker's key of the same meaning, and those of its limits."""

    key: ConfigKey[int]
    of_broker: ConfigKey[int]
    least: ConfigKey[int]
    most: ConfigKey[int]

    def within_limits(self, value: int, config: Values) -> int:
        """Return the value, or the limit of this broker that it is beyond."""
        return min(max(value, config[self.least]), config[self.most])

    def check(self, value: int, config: Values) -> None:
        """Check a value against the limits of this broker.

        Raises:
            ConfigError: it is beyond them.
        """
        least, most = config[self.least], config[self.most]
        if not least <= value <= most:
            raise ConfigError(
                f"{self.key.name}={value}: must be from {least} ({self.least.name}) to {most} "
                f"({self.most.name})"
            )


def _key(name: str, at_least: int, default: int, doc: str) -> ConfigKey[int]:
    return ConfigKey(
        name=name,
        type=int,
        default=default,
        at_least=at_least,
        at_most=_INT_MAX,
        doc=f"{doc} Groups of the classic protocol do not use it.",
        update=Update.CLUSTER_WIDE,
    )


CONSUMER_SESSION_TIMEOUT: Final = GroupKey(
    _key(
        "consumer.session.timeout.ms",
        1,
        45_000,
        "How long a member of the group may be silent before it is removed, with the consumer "
        "protocol.",
    ),
    GROUP_CONSUMER_SESSION_TIMEOUT_MS,
    GROUP_CONSUMER_MIN_SESSION_TIMEOUT_MS,
    GROUP_CONSUMER_MAX_SESSION_TIMEOUT_MS,
)
CONSUMER_HEARTBEAT_INTERVAL: Final = GroupKey(
    _key(
        "consumer.heartbeat.interval.ms",
        1,
        5_000,
        "How often members of the group send heartbeats, with the consumer protocol.",
    ),
    GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS,
    GROUP_CONSUMER_MIN_HEARTBEAT_INTERVAL_MS,
    GROUP_CONSUMER_MAX_HEARTBEAT_INTERVAL_MS,
)
CONSUMER_ASSIGNMENT_INTERVAL: Final = GroupKey(
    _key(
        "consumer.assignment.interval.ms",
        0,
        1_000,
        "The least time between two target assignments of the group, with the consumer protocol.",
    ),
    GROUP_CONSUMER_ASSIGNMENT_INTERVAL_MS,
    GROUP_CONSUMER_MIN_ASSIGNMENT_INTERVAL_MS,
    GROUP_CONSUMER_MAX_ASSIGNMENT_INTERVAL_MS,
)

GROUP_KEYS: Final[Mapping[str, GroupKey]] = {
    each.key.name: each
    for each in (
        CONSUMER_ASSIGNMENT_INTERVAL,
        CONSUMER_HEARTBEAT_INTERVAL,
        CONSUMER_SESSION_TIMEOUT,
    )
}

GROUP_SPEC: Final = ConfigSpec(GROUP, [each.key for each in GROUP_KEYS.values()])


def check_group(values: Mapping[str, str], config: Values) -> None:
    """Check what a group sets, each key by itself and all together, with the broker's values for
    the others.

    Raises:
        ConfigError: a value is beyond its limits.
    """
    for key, value in _parsed(values):
        key.check(value, config)
    known = dict(_parsed(values))
    session, heartbeat = (
        known.get(key, config[key.of_broker])
        for key in (CONSUMER_SESSION_TIMEOUT, CONSUMER_HEARTBEAT_INTERVAL)
    )
    if heartbeat >= session:
        raise ConfigError(
            f"{CONSUMER_HEARTBEAT_INTERVAL.key.name}={heartbeat}: must be less than "
            f"{CONSUMER_SESSION_TIMEOUT.key.name}, which is {session}"
        )


def _parsed(values: Mapping[str, str]) -> Iterator[tuple[GroupKey, int]]:
    for name, text in values.items():
        key = GROUP_KEYS.get(name)
        if key is not None:
            yield key, key.key.parse(text)
