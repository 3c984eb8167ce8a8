"""How long, and how much of them, partition logs are kept. Kafka's names and defaults."""

from typing import Final

from metadata_log.configuration import CoarserKey, ConfigKey, Update

_SEVEN_DAYS_HOURS: Final = 7 * 24
_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 60 * _MINUTE_MS

LOG_RETENTION_HOURS: Final = ConfigKey(
    name="log.retention.hours",
    type=int,
    default=_SEVEN_DAYS_HOURS,
    at_least=-1,
    at_most=2**31 - 1,
    doc="As log.retention.ms, in hours; holds where neither that nor log.retention.minutes is set.",
)
LOG_RETENTION_MINUTES: Final = ConfigKey(
    name="log.retention.minutes",
    type=int,
    default=60 * _SEVEN_DAYS_HOURS,
    at_least=-1,
    at_most=2**31 - 1,
    doc="As log.retention.ms, in minutes; holds where that is not set.",
)
LOG_RETENTION_MS: Final = ConfigKey(
    name="log.retention.ms",
    type=int,
    default=_SEVEN_DAYS_HOURS * _HOUR_MS,
    at_least=-1,
    at_most=2**63 - 1,
    doc="Age beyond which records are deleted, for topics without retention.ms; -1: kept forever.",
    update=Update.CLUSTER_WIDE,
    coarser=(
        CoarserKey(LOG_RETENTION_MINUTES, _MINUTE_MS),
        CoarserKey(LOG_RETENTION_HOURS, _HOUR_MS),
    ),
)
LOG_RETENTION_BYTES: Final = ConfigKey(
    name="log.retention.bytes",
    type=int,
    default=-1,
    at_least=-1,
    at_most=2**63 - 1,
    doc="Bytes of a partition beyond which the oldest are deleted, for topics without "
    "retention.bytes; -1: no limit.",
    update=Update.CLUSTER_WIDE,
)
LOG_RETENTION_CHECK_INTERVAL_MS: Final = ConfigKey(
    name="log.retention.check.interval.ms",
    type=int,
    default=300_000,
    at_least=1,
    doc="How often a broker looks for records to delete.",
)
