"""What is remembered of idempotent producers, and for how long."""

from typing import Final

from metadata_log.configuration import ConfigKey, Update

PRODUCER_ID_EXPIRATION_MS: Final = ConfigKey(
    name="producer.id.expiration.ms",
    type=int,
    default=86_400_000,
    at_least=1,
    doc="A partition forgets a producer that has sent it nothing for so long: what such a one "
    "sends again may be stored twice. Make it longer than delivery.timeout.ms of every producer.",
)
PRODUCER_ID_EXPIRATION_CHECK_INTERVAL_MS: Final = ConfigKey(
    name="producer.id.expiration.check.interval.ms",
    type=int,
    default=600_000,
    at_least=1,
    doc="How often a broker looks for producers to forget.",
)
TRANSACTION_PARTITION_VERIFICATION_ENABLE: Final = ConfigKey(
    name="transaction.partition.verification.enable",
    type=bool,
    default=True,
    doc="Whether a leader asks the coordinator before a transaction begins in a partition. Without "
    "it a batch that was held up may begin one that nobody ends: readers of what is committed get "
    "no further.",
    update=Update.CLUSTER_WIDE,
)
