"""The metadata of one transactional id: an immutable value; each change makes a new one.

    EMPTY ──add──▶ ONGOING ──end──▶ PREPARE_COMMIT ──markers──▶ COMPLETE_COMMIT ──add──▶ ONGOING …
                      │
                      ├──end, a newer producer, its time is up──▶ PREPARE_ABORT ──▶ COMPLETE_ABORT

A producer with transactions v2 (KIP-890) may also abort where it has begun nothing, so
PREPARE_ABORT also follows the three states at rest.

Invariants: a prepared transaction is decided, so no request, timeout or coordinator changes it
except by completing it. The epoch of a producer id never decreases. If somebody else ended a
producer's transaction, the transaction has a newer epoch than that producer from then on. With
transactions v2 every end begins a new epoch, so each epoch has one transaction.
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

TRANSACTIONS_V2: Final = 2
"""The ``transaction.version`` from which on each end of a transaction begins a new epoch."""


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
    TransactionState.PREPARE_ABORT: frozenset(
        {
            TransactionState.ONGOING,
            TransactionState.EMPTY,
            TransactionState.COMPLETE_COMMIT,
            TransactionState.COMPLETE_ABORT,
        }
    ),
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
    present one (KIP-360); that producer may repeat its request. It is not in the log.
    ``previous_producer_id`` is the id before this one, whose epochs were used up.
    ``next_producer_id`` is the id that the producer has from the completion on, if the epochs of
    this one are used up. ``client_version`` is the transaction.version by which the transaction was
    begun or ended: from 2 on its end has begun a new epoch.
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
    next_producer_id: int = NO_PRODUCER_ID
    client_version: int = 0

    @property
    def producer(self) -> ProducerEpoch:
        """Return the producer that may write now."""
        return ProducerEpoch(self.producer_id, self.epoch)

    @property
    def next_producer(self) -> ProducerEpoch:
        """Return the id and epoch with which the producer goes on once the end is complete."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return ProducerEpoch(self.next_producer_id, 0)
        return self.producer

    def ended_in_next_epoch(
        self, state: TransactionState, now_ms: int, next_producer_id: int | None
    ) -> "TransactionMetadata":
        """Return the decision of an end by transactions v2, in the producer's next epoch.

        ``next_producer_id`` is needed if the epochs are used up. Partitions get markers of the new
        epoch, so that they refuse what was sent before the end and comes after it.
        """
        return self._replace(
            state=state,
            epoch=min(self.epoch + 1, LAST_EPOCH),
            last_epoch=self.epoch,
            started_ms=self.started_ms if self.state is TransactionState.ONGOING else now_ms,
            updated_ms=now_ms,
            next_producer_id=NO_PRODUCER_ID if next_producer_id is None else next_producer_id,
            client_version=TRANSACTIONS_V2,
        )

    def completed(self, now_ms: int) -> "TransactionMetadata":
        """Return this decided transaction once all of its markers are written."""
        assert self.is_prepared, f"{self.state.title}: only what is prepared can be completed"
        committed = self.state is TransactionState.PREPARE_COMMIT
        state = TransactionState.COMPLETE_COMMIT if committed else TransactionState.COMPLETE_ABORT
        done = self._replace(state=state, partitions=frozenset(), updated_ms=now_ms)
        if self.next_producer_id == NO_PRODUCER_ID:
            return done
        return done._replace(
            producer_id=self.next_producer_id,
            epoch=0,
            previous_producer_id=self.producer_id,
            next_producer_id=NO_PRODUCER_ID,
        )

    @property
    def is_prepared(self) -> bool:
        return self.state in PREPARED

    @property
    def is_complete(self) -> bool:
        return self.state in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)

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
        is_legal = before.state in LEGAL_BEFORE.get(self.state, ())
        if self.is_prepared and before.state is not TransactionState.ONGOING:
            is_legal = is_legal and self.epoch > before.epoch
        if is_legal and not (same_producer and self.epoch < before.epoch):
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
