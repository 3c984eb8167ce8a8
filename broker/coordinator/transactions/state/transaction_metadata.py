"""The metadata of one transactional id: an immutable value; each change makes a new one.

    EMPTY ──add──▶ ONGOING ──end──▶ PREPARE_COMMIT ──markers──▶ COMPLETE_COMMIT ──add──▶ ONGOING …
                      │
                      ├──end, a newer producer, its time is up──▶ PREPARE_ABORT ──▶ COMPLETE_ABORT

Invariants: a prepared transaction is decided, so no request, timeout or coordinator changes it
except by completing it. The epoch of a producer id never decreases. If somebody else ended a
producer's transaction, the transaction has a newer epoch than that producer from then on.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from quorate.common.invariants import BrokenInvariant
from quorate.common.types import TopicPartition

NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
NEVER_MS: Final = -1

LAST_EPOCH: Final = 2**15 - 1
"""The last epoch of a producer id. It is reserved for fencing; no producer receives it."""


class TransactionState(IntEnum):
    """The states under their numbers in the log. The last two are Kafka's states that exist only in
    memory; they are never written."""

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
        """Return the name that clients see, such as ``PrepareCommit``."""
        return "".join(word.capitalize() for word in self.name.split("_"))


LEGAL_BEFORE: Final[Mapping[TransactionState, frozenset[TransactionState]]] = {
    TransactionState.EMPTY: frozenset(
        {
            TransactionState.EMPTY,
            TransactionState.COMPLETE_COMMIT,
            TransactionState.COMPLETE_ABORT,
        }
    ),
    TransactionState.ONGOING: frozenset(
        {
            TransactionState.EMPTY,
            TransactionState.ONGOING,
            TransactionState.COMPLETE_COMMIT,
            TransactionState.COMPLETE_ABORT,
        }
    ),
    TransactionState.PREPARE_COMMIT: frozenset({TransactionState.ONGOING}),
    TransactionState.PREPARE_ABORT: frozenset({TransactionState.ONGOING}),
    TransactionState.COMPLETE_COMMIT: frozenset({TransactionState.PREPARE_COMMIT}),
    TransactionState.COMPLETE_ABORT: frozenset({TransactionState.PREPARE_ABORT}),
}
"""The states from which a transactional id may come to a state, as the diagram above shows."""

PREPARED: Final = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})
"""The states in which the end is decided, and markers are being sent to the partitions."""

AT_REST: Final = frozenset(
    {TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT}
)
"""The states in which no partition waits for a marker."""


class ProducerEpoch(NamedTuple):
    """A producer id with an epoch, as a producer identifies itself."""

    producer_id: int
    epoch: int


class TransactionMetadata(NamedTuple):
    """The metadata of a transactional id.

    Times are wall-clock ms since the epoch, because the next coordinator has another monotonic
    clock. ``last_epoch`` is the epoch before the present one, if the same producer requested the
    present one (KIP-360); that producer may repeat its request. ``previous_producer_id`` is the id
    before this one, whose epochs were used up. Neither is in the log.
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
        """Return whether a prepared or complete transaction is a commit."""
        return self.state in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)

    @property
    def epochs_are_used_up(self) -> bool:
        return self.epoch >= LAST_EPOCH - 1

    def check_follows(self, transactional_id: str, before: "TransactionMetadata") -> None:
        """Check that this may come after ``before``.

        Raises:
            BrokenInvariant: the outcome of a transaction would change, or an epoch fall.
        """
        same_producer = self.producer_id == before.producer_id
        if before.state in LEGAL_BEFORE.get(self.state, ()) and not (
            same_producer and self.epoch < before.epoch
        ):
            return
        raise BrokenInvariant(
            f"transactional id {transactional_id}",
            "states follow their order, and epochs never fall (KIP-98)",
            state=self.state.title,
            epoch=self.epoch,
            producer_id=self.producer_id,
            before=before,
        )

    def is_overdue(self, now_ms: int) -> bool:
        """Return whether the transaction has been open for longer than its timeout."""
        ongoing = self.state is TransactionState.ONGOING
        return ongoing and self.started_ms + self.timeout_ms < now_ms
