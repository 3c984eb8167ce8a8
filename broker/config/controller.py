"""The keys of the controller: its own activities and its timeouts."""

from typing import Final

from quorate.common.configuration import ConfigKey, Update

AUDIT_LOG_FILE: Final = ConfigKey(
    name="audit.log.file",
    type=str,
    default="audit.log",
    doc="The file in which the controller writes who changed what, one line of JSON per change. "
    "The path is relative to log.dir unless it begins with /. The file may be renamed at any "
    "time; the controller begins a new one then. If empty, there is no file. The metadata log "
    "records who changed what in any case, see `quorate metadata tail`.",
)
AUDIT_LOG_ROLL_BYTES: Final = ConfigKey(
    name="audit.log.roll.bytes",
    type=int,
    default=64 << 20,
    at_least=-1,
    doc="The audit log begins a new file once the last one has this size. The time is added to the "
    "name of the old one. -1 means never.",
)
AUDIT_LOG_ROLL_DAYS: Final = ConfigKey(
    name="audit.log.roll.days",
    type=int,
    default=30,
    at_least=-1,
    doc="The audit log begins a new file once the first entry of the last one is this many days "
    "old. -1 means never.",
)
AUDIT_LOG_RETENTION_DAYS: Final = ConfigKey(
    name="audit.log.retention.days",
    type=int,
    default=365,
    at_least=-1,
    doc="Files of the audit log are deleted this many days after a new one was begun. -1 means "
    "never.",
)
AUTO_LEADER_REBALANCE_ENABLE: Final = ConfigKey(
    name="auto.leader.rebalance.enable",
    type=bool,
    default=True,
    doc="Whether the controller moves leadership back to preferred replicas by itself: at "
    "intervals, and a few seconds after absent brokers are back and all replicas are in sync.",
    update=Update.CLUSTER_WIDE,
)
LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS: Final = ConfigKey(
    name="leader.imbalance.check.interval.seconds",
    type=int,
    default=300,
    at_least=1,
    doc="How often the controller checks for brokers that lead too few partitions.",
    update=Update.CLUSTER_WIDE,
)
LEADER_IMBALANCE_PER_BROKER_PERCENTAGE: Final = ConfigKey(
    name="leader.imbalance.per.broker.percentage",
    type=int,
    default=10,
    at_least=0,
    doc="A broker leads too few partitions when others lead more than this share of the "
    "partitions that prefer it.",
    update=Update.CLUSTER_WIDE,
)
CONTROL_REQUEST_TIMEOUT_MS: Final = ConfigKey(
    name="controller.socket.timeout.ms",
    type=int,
    default=30_000,
    at_least=100,
    doc="A control request without an answer for this long is sent again, and an alert is raised "
    "(C18).",
)
