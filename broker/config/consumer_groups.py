"""The keys of groups of the consumer protocol (KIP-848), with Kafka's names and defaults."""

from typing import Final

from quorate.common.configuration import ConfigError, ConfigKey, Update, Values, list_items

ASSIGNORS: Final = ("uniform", "range")
"""The assignors that this version has."""

GROUP_CONSUMER_SESSION_TIMEOUT_MS: Final = ConfigKey(
    name="group.consumer.session.timeout.ms",
    type=int,
    default=45_000,
    at_least=1,
    doc="How long a member of a consumer group may be silent before it is removed.",
)
GROUP_CONSUMER_MIN_SESSION_TIMEOUT_MS: Final = ConfigKey(
    name="group.consumer.min.session.timeout.ms",
    type=int,
    default=45_000,
    at_least=1,
    doc="The least value of group.consumer.session.timeout.ms.",
)
GROUP_CONSUMER_MAX_SESSION_TIMEOUT_MS: Final = ConfigKey(
    name="group.consumer.max.session.timeout.ms",
    type=int,
    default=60_000,
    at_least=1,
    doc="The greatest value of group.consumer.session.timeout.ms.",
)
GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS: Final = ConfigKey(
    name="group.consumer.heartbeat.interval.ms",
    type=int,
    default=5_000,
    at_least=1,
    doc="How often members of a consumer group are told to heartbeat. It must be less than their "
    "session timeout.",
)
GROUP_CONSUMER_MIN_HEARTBEAT_INTERVAL_MS: Final = ConfigKey(
    name="group.consumer.min.heartbeat.interval.ms",
    type=int,
    default=5_000,
    at_least=1,
    doc="The least value of group.consumer.heartbeat.interval.ms.",
)
GROUP_CONSUMER_MAX_HEARTBEAT_INTERVAL_MS: Final = ConfigKey(
    name="group.consumer.max.heartbeat.interval.ms",
    type=int,
    default=15_000,
    at_least=1,
    doc="The greatest value of group.consumer.heartbeat.interval.ms.",
)
GROUP_CONSUMER_MAX_SIZE: Final = ConfigKey(
    name="group.consumer.max.size",
    type=int,
    default=2**31 - 1,
    at_least=1,
    doc="The most members that a consumer group may have.",
)
GROUP_CONSUMER_ASSIGNORS: Final = ConfigKey(
    name="group.consumer.assignors",
    type=str,
    default=",".join(ASSIGNORS),
    is_list=True,
    doc="The assignors that members of consumer groups may ask for, of uniform and range. The "
    "first one is used where they ask for none.",
)
GROUP_CONSUMER_ASSIGNMENT_INTERVAL_MS: Final = ConfigKey(
    name="group.consumer.assignment.interval.ms",
    type=int,
    default=1_000,
    at_least=0,
    doc="The least time between two target assignments of a consumer group (KIP-1263). A value "
    "that is set while brokers run is brought within the limits of each broker.",
    update=Update.CLUSTER_WIDE,
)
GROUP_CONSUMER_MIN_ASSIGNMENT_INTERVAL_MS: Final = ConfigKey(
    name="group.consumer.min.assignment.interval.ms",
    type=int,
    default=0,
    at_least=0,
    doc="The least value of group.consumer.assignment.interval.ms.",
)
GROUP_CONSUMER_MAX_ASSIGNMENT_INTERVAL_MS: Final = ConfigKey(
    name="group.consumer.max.assignment.interval.ms",
    type=int,
    default=15_000,
    at_least=0,
    doc="The greatest value of group.consumer.assignment.interval.ms.",
)
GROUP_CONSUMER_REGEX_REFRESH_INTERVAL_MS: Final = ConfigKey(
    name="group.consumer.regex.refresh.interval.ms",
    type=int,
    default=600_000,
    at_least=10_000,
    doc="How often the topics are looked for that match the regular expressions of a consumer "
    "group, even if no topic was created.",
)
GROUP_CONSUMER_MIGRATION_POLICY: Final = ConfigKey(
    name="group.consumer.migration.policy",
    type=str,
    default="bidirectional",
    one_of=("disabled", "upgrade", "downgrade", "bidirectional"),
    doc="Whether groups with members change their protocol: a classic group when a member of the "
    "consumer protocol joins (upgrade), a consumer group when the last of these members has left "
    "(downgrade), both (bidirectional), or none (disabled). Groups without members always do.",
)


def check_consumer_groups(config: Values) -> None:
    """Check what the keys of consumer groups say together.

    Raises:
        ConfigError: a value is beyond its limits, or an assignor is not known.
    """
    session, heartbeat = GROUP_CONSUMER_SESSION_TIMEOUT_MS, GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS
    _check_range(
        config,
        session,
        GROUP_CONSUMER_MIN_SESSION_TIMEOUT_MS,
        GROUP_CONSUMER_MAX_SESSION_TIMEOUT_MS,
    )
    _check_range(
        config,
        heartbeat,
        GROUP_CONSUMER_MIN_HEARTBEAT_INTERVAL_MS,
        GROUP_CONSUMER_MAX_HEARTBEAT_INTERVAL_MS,
    )
    _check_range(
        config,
        GROUP_CONSUMER_ASSIGNMENT_INTERVAL_MS,
        GROUP_CONSUMER_MIN_ASSIGNMENT_INTERVAL_MS,
        GROUP_CONSUMER_MAX_ASSIGNMENT_INTERVAL_MS,
    )
    if config[heartbeat] >= config[session]:
        raise ConfigError(
            f"{heartbeat.name}={config[heartbeat]}: must be less than {session.name}, "
            f"which is {config[session]}"
        )
    names = list_items(config[GROUP_CONSUMER_ASSIGNORS])
    unknown = [name for name in names if name not in ASSIGNORS]
    if unknown or not names or len({*names}) < len(names):
        raise ConfigError(
            f"{GROUP_CONSUMER_ASSIGNORS.name}={config[GROUP_CONSUMER_ASSIGNORS]}: must name some "
            f"of {', '.join(ASSIGNORS)}, each once"
        )


def _check_range(
    config: Values,
    key: ConfigKey[int],
    least: ConfigKey[int],
    most: ConfigKey[int],
) -> None:
    if not config[least] <= config[key] <= config[most]:
        raise ConfigError(
            f"{key.name}={config[key]}: must be from {least.name}, which is {config[least]}, "
            f"to {most.name}, which is {config[most]}"
        )
