"""The keys of log retention, with Kafka's names and defaults."""

from typing import Final

from quorate.common.configuration import ConfigKey, KeyInLargerUnit, Update

_SEVEN_DAYS_HOURS: Final = 7 * 24
_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 60 * _MINUTE_MS

LOG_RETENTION_HOURS: Final = ConfigKey(
    name="log.retention.hours",
    type=int,
    default=_SEVEN_DAYS_HOURS,
    at_least=-1,
    at_most=2**31 - 1,
    doc="Like log.retention.ms, in hours. It applies if neither log.retention.ms nor "
    "log.retention.minutes is set.",
)
LOG_RETENTION_MINUTES: Final = ConfigKey(
    name="log.retention.minutes",
    type=int,
    default=60 * _SEVEN_DAYS_HOURS,
    at_least=-1,
    at_most=2**31 - 1,
    doc="Like log.retention.ms, in minutes. It applies if log.retention.ms is not set.",
)
LOG_RETENTION_MS: Final = ConfigKey(
    name="log.retention.ms",
    type=int,
    default=_SEVEN_DAYS_HOURS * _HOUR_MS,
    at_least=-1,
    at_most=2**63 - 1,
    doc="Records older than this are deleted, for topics without retention.ms. -1 keeps them "
    "forever.",
    update=Update.CLUSTER_WIDE,
    coarser=(
        KeyInLargerUnit(LOG_RETENTION_MINUTES, _MINUTE_MS),
        KeyInLargerUnit(LOG_RETENTION_HOURS, _HOUR_MS),
    ),
)
LOG_RETENTION_BYTES: Final = ConfigKey(
    name="log.retention.bytes",
    type=int,
    default=-1,
    at_least=-1,
    at_most=2**63 - 1,
    doc="When a partition holds more bytes than this, its oldest records are deleted, for topics "
    "without retention.bytes. -1 means no limit.",
    update=Update.CLUSTER_WIDE,
)
LOG_RETENTION_CHECK_INTERVAL_MS: Final = ConfigKey(
    name="log.retention.check.interval.ms",
    type=int,
    default=300_000,
    at_least=1,
    doc="How often a broker checks for records to delete.",
)
