"""The configuration keys of groups (KIP-848, KIP-932), with Kafka's names.

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
from quorate.broker.config.share_groups import BOUNDS as SHARE_BOUNDS
from quorate.broker.config.share_groups import (
    GROUP_SHARE_ASSIGNMENT_INTERVAL_MS,
    GROUP_SHARE_DELIVERY_COUNT_LIMIT,
    GROUP_SHARE_HEARTBEAT_INTERVAL_MS,
    GROUP_SHARE_PARTITION_MAX_RECORD_LOCKS,
    GROUP_SHARE_RECORD_LOCK_DURATION_MS,
    GROUP_SHARE_SESSION_TIMEOUT_MS,
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


def _share_key(of_broker: ConfigKey[int], doc: str) -> GroupKey:
    """Return the key of share groups that has the name of the broker's without ``group.``."""
    least, most = _SHARE_LIMITS[of_broker.name]
    key = ConfigKey(
        name=of_broker.name.removeprefix("group."),
        type=int,
        default=of_broker.default,
        at_least=least.at_least,
        at_most=most.at_most or _INT_MAX,
        doc=doc,
        update=Update.CLUSTER_WIDE,
    )
    return GroupKey(key, of_broker, least, most)


_SHARE_LIMITS: Final = {key.name: (least, most) for key, least, most in SHARE_BOUNDS}

SHARE_SESSION_TIMEOUT: Final = _share_key(
    GROUP_SHARE_SESSION_TIMEOUT_MS,
    "How long a member may be silent before it is removed, in this share group.",
)
SHARE_HEARTBEAT_INTERVAL: Final = _share_key(
    GROUP_SHARE_HEARTBEAT_INTERVAL_MS,
    "How often members send heartbeats in this share group.",
)
SHARE_ASSIGNMENT_INTERVAL: Final = _share_key(
    GROUP_SHARE_ASSIGNMENT_INTERVAL_MS,
    "The least time between two target assignments in this share group.",
)
SHARE_RECORD_LOCK_DURATION: Final = _share_key(
    GROUP_SHARE_RECORD_LOCK_DURATION_MS,
    "How long a member has a record to itself in this share group.",
)
SHARE_DELIVERY_COUNT_LIMIT: Final = _share_key(
    GROUP_SHARE_DELIVERY_COUNT_LIMIT,
    "How often a record is delivered in this share group.",
)
SHARE_PARTITION_MAX_RECORD_LOCKS: Final = _share_key(
    GROUP_SHARE_PARTITION_MAX_RECORD_LOCKS,
    "The most records of a partition that are worked at in this share group.",
)
SHARE_AUTO_OFFSET_RESET: Final = ConfigKey(
    name="share.auto.offset.reset",
    type=str,
    default="latest",
    pattern=r"latest|earliest|by_duration:P(?=[0-9T])([0-9]+D)?(T(?=[0-9])([0-9]+H)?([0-9]+M)?"
    r"([0-9]+(\.[0-9]+)?S)?)?",
    form="latest, earliest, or by_duration: with a duration of ISO 8601 such as by_duration:PT1H",
    doc="Where the share group begins with a partition that it has not read yet.",
    update=Update.CLUSTER_WIDE,
)
SHARE_ISOLATION_LEVEL: Final = ConfigKey(
    name="share.isolation.level",
    type=str,
    default="read_uncommitted",
    one_of=("read_committed", "read_uncommitted"),
    doc="Whether the share group gets records of transactions only once they are committed.",
    update=Update.CLUSTER_WIDE,
)
SHARE_RENEW_ACKNOWLEDGE_ENABLE: Final = ConfigKey(
    name="share.renew.acknowledge.enable",
    type=bool,
    default=True,
    doc="Whether members of the share group may renew the locks of records (KIP-1222).",
    update=Update.CLUSTER_WIDE,
)
SHARE_DEAD_LETTER_TOPIC: Final = ConfigKey(
    name="errors.deadletterqueue.topic.name",
    type=str,
    default="",
    pattern=r"[A-Za-z0-9._-]{0,249}",
    form="the name of a topic",
    doc="The topic that gets a dead letter for each record that the share group rejects, or that "
    "was delivered too often (KIP-1191). Its own errors.deadletterqueue.group.enable must be true. "
    "Empty, there are no dead letters.",
    update=Update.CLUSTER_WIDE,
)
SHARE_DEAD_LETTER_COPY_RECORD_ENABLE: Final = ConfigKey(
    name="errors.deadletterqueue.copy.record.enable",
    type=bool,
    default=False,
    doc="Whether dead letters have the key, the value and the headers of the record, and not only "
    "headers that say where it is (KIP-1191).",
    update=Update.CLUSTER_WIDE,
)

GROUP_KEYS: Final[Mapping[str, GroupKey]] = {
    each.key.name: each
    for each in (
        CONSUMER_ASSIGNMENT_INTERVAL,
        CONSUMER_HEARTBEAT_INTERVAL,
        CONSUMER_SESSION_TIMEOUT,
        SHARE_ASSIGNMENT_INTERVAL,
        SHARE_DELIVERY_COUNT_LIMIT,
        SHARE_HEARTBEAT_INTERVAL,
        SHARE_PARTITION_MAX_RECORD_LOCKS,
        SHARE_RECORD_LOCK_DURATION,
        SHARE_SESSION_TIMEOUT,
    )
}
"""The keys that a key of the broker has the same meaning as, by name."""

GROUP_SPEC: Final = ConfigSpec(
    GROUP,
    [
        *(each.key for each in GROUP_KEYS.values()),
        SHARE_AUTO_OFFSET_RESET,
        SHARE_DEAD_LETTER_COPY_RECORD_ENABLE,
        SHARE_DEAD_LETTER_TOPIC,
        SHARE_ISOLATION_LEVEL,
        SHARE_RENEW_ACKNOWLEDGE_ENABLE,
    ],
)

_TIMES_OF_MEMBERS: Final = (
    (CONSUMER_SESSION_TIMEOUT, CONSUMER_HEARTBEAT_INTERVAL),
    (SHARE_SESSION_TIMEOUT, SHARE_HEARTBEAT_INTERVAL),
)
"""Session timeouts, each with the interval of heartbeats that must be less."""


def check_group(values: Mapping[str, str], config: Values) -> None:
    """Check what a group sets, each key by itself and all together, with the broker's values for
    the others.

    Raises:
        ConfigError: a value is beyond its limits.
    """
    for key, value in _parsed(values):
        key.check(value, config)
    known = dict(_parsed(values))
    for session_key, heartbeat_key in _TIMES_OF_MEMBERS:
        session, heartbeat = (
            known.get(key, config[key.of_broker]) for key in (session_key, heartbeat_key)
        )
        if heartbeat >= session:
            raise ConfigError(
                f"{heartbeat_key.key.name}={heartbeat}: must be less than "
                f"{session_key.key.name}, which is {session}"
            )


def _parsed(values: Mapping[str, str]) -> Iterator[tuple[GroupKey, int]]:
    for name, text in values.items():
        key = GROUP_KEYS.get(name)
        if key is not None:
            yield key, key.key.parse(text)
