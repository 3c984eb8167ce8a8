"""What is known of one transactional id: a value; each change makes another.

    EMPTY ──add──▶ ONGOING ──end──▶ PREPARE_COMMIT ──markers──▶ COMPLETE_COMMIT ──add──▶ ONGOING …
                      │
                      ├──end, a newer producer, its time is up──▶ PREPARE_ABORT ──▶ COMPLETE_ABORT

Invariants. What is prepared is decided: no other request, timeout or coordinator changes a prepared
transaction but by completing it. The epoch of a producer id never falls. A producer whose
transaction somebody else ended has an older epoch than the transaction from then on.
"""

from enum import IntEnum
from typing import Final, NamedTuple

from metadata_log.types import TopicPartition

NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
NEVER_MS: Final = -1

LAST_EPOCH: Final = 2**15 - 1
"""Of a producer id; kept back for fencing: no producer is ever given it."""


class TransactionState(IntEnum):
    """By the numbers that stand in the log. The last two are Kafka's, in memory alone, and are
    never written."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def title(self) -> str:
        """As clients are told it: ``PrepareCommit``."""
        return "".join(word.capitalize() for word in self.name.split("_"))


PREPARED: Final = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})
"""Decided: markers are on their way to its partitions."""

AT_REST: Final = frozenset(
    {TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT}
)
"""No partition waits for anything."""


class ProducerEpoch(NamedTuple):
    """A producer, as it names itself."""

    producer_id: int
    epoch: int


class Transaction(NamedTuple):
    """Times are wall-clock ms since the epoch: the next coordinator has another monotonic clock.

    ``last_epoch``: the one before, if the same producer asked for the present one (KIP-360): it may
    ask again. ``previous_producer_id``: the id before, whose epochs were used up. Neither is in the
    log.
    """

    producer_id: int
    epoch: int
    timeout_ms: int
    state: TransactionState
    partitions: frozenset[TopicPartition]
    updated_ms: int
    started_ms: int = NEVER_MS
    last_epoch: int = NO_EPOCH
    previous_producer_id: int = NO_PRODUCER_ID

    @property
    def is_prepared(self) -> bool:
        return self.state in PREPARED

    @property
    def is_commit(self) -> bool:
        """Of what is prepared or complete."""
        return self.state in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)

    @property
    def epochs_are_used_up(self) -> bool:
        return self.epoch >= LAST_EPOCH - 1

    def is_overdue(self, now_ms: int) -> bool:
        """It has been open for longer than its producer asked for."""
        ongoing = self.state is TransactionState.ONGOING
        return ongoing and self.started_ms + self.timeout_ms < now_ms
