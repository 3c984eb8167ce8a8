"""The keys of idempotent and transactional producers."""

from typing import Final

from quorate.common.configuration import ConfigKey, Update

PRODUCER_ID_EXPIRATION_MS: Final = ConfigKey(
    name="producer.id.expiration.ms",
    type=int,
    default=86_400_000,
    at_least=1,
    doc="A partition forgets a producer that has sent it nothing for this long. If such a "
    "producer sends a batch again, it may be stored twice. Make this longer than "
    "delivery.timeout.ms of every producer.",
)
PRODUCER_ID_EXPIRATION_CHECK_INTERVAL_MS: Final = ConfigKey(
    name="producer.id.expiration.check.interval.ms",
    type=int,
    default=600_000,
    at_least=1,
    doc="How often a broker checks for producers to forget.",
)
TRANSACTION_PARTITION_VERIFICATION_ENABLE: Final = ConfigKey(
    name="transaction.partition.verification.enable",
    type=bool,
    default=True,
    doc="Whether a leader asks the transaction coordinator before a transaction begins in a "
    "partition. Without this check, a delayed batch may begin a transaction that nobody ends, "
    "and consumers with read_committed get no further.",
    update=Update.CLUSTER_WIDE,
)
