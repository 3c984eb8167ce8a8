"""What the controller does by itself, and how long it waits."""

from typing import Final

from metadata_log.configuration import ConfigKey, Update

AUDIT_LOG_FILE: Final = ConfigKey(
    name="audit.log.file",
    type=str,
    default="audit.log",
    doc="Where the controller writes who changed what, one line of JSON per change: a path, from "
    "log.dir on unless it begins with /. It may be renamed at any time, and is begun anew; nothing "
    "deletes it. Empty: no file; the metadata log has who changed what all the same, see "
    "`quorate metadata tail`.",
)
AUTO_LEADER_REBALANCE_ENABLE: Final = ConfigKey(
    name="auto.leader.rebalance.enable",
    type=bool,
    default=True,
    doc="Whether the controller gives leadership back to preferred replicas by itself.",
    update=Update.CLUSTER_WIDE,
)
LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS: Final = ConfigKey(
    name="leader.imbalance.check.interval.seconds",
    type=int,
    default=300,
    at_least=1,
    doc="How often the controller looks for brokers that lead too few partitions.",
    update=Update.CLUSTER_WIDE,
)
LEADER_IMBALANCE_PER_BROKER_PERCENTAGE: Final = ConfigKey(
    name="leader.imbalance.per.broker.percentage",
    type=int,
    default=10,
    at_least=0,
    doc="A broker leads too few once others lead more than this share of what prefers it.",
    update=Update.CLUSTER_WIDE,
)
CONTROL_REQUEST_TIMEOUT_MS: Final = ConfigKey(
    name="controller.socket.timeout.ms",
    type=int,
    default=30_000,
    at_least=100,
    doc="A control request unanswered for this long is retried and raised as an alert (C18).",
)
