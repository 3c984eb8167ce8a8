"""Guards of transactions in partitions, each with a way to take it out: see ``mutants``."""

from typing import Any, Final

from quorate.broker.common.errors import KafkaError
from quorate.broker.coordinator.transactions.state import transaction_decisions
from quorate.broker.coordinator.transactions.state.transaction_decisions import (
    Decision,
    Done,
    Refused,
)
from quorate.broker.coordinator.transactions.state.transaction_metadata import (
    TransactionMetadata,
)
from quorate.broker.log.batches.control_batches import EndMarker
from quorate.broker.log.state.producer_state_manager import ProducerStateManager
from quorate.broker.log.state.transactions import PartitionTransactions
from quorate.broker.replication.api import TransactionSupport
from quorate.broker.replication.serving.transaction_verification import (
    TransactionBatch,
    TransactionVerification,
)
from quorate_proto.v1 import errors_pb2
from tests.sim.mutants import Mutant, Replacement, nothing


def _truncated_transactions() -> list[Replacement]:
    return [
        (PartitionTransactions, "truncate_from_end", nothing),
        (PartitionTransactions, "under_way_at", nothing),
    ]


def _coordinator_epoch() -> list[Replacement]:
    def check_marker(self: ProducerStateManager, marker: EndMarker) -> None:
        try:
            check(self, marker)
        except KafkaError as error:
            if error.code != errors_pb2.TRANSACTION_COORDINATOR_FENCED:
                raise

    check = ProducerStateManager.check_marker
    return [(ProducerStateManager, "check_marker", check_marker)]


def _committed_markers() -> list[Replacement]:
    def stable_offset(self: PartitionTransactions, high_watermark: int) -> int:
        return min([*self.ongoing.values(), high_watermark])

    return [(PartitionTransactions, "stable_offset", stable_offset)]


def _transaction_fence() -> list[Replacement]:
    def record_marker(self: ProducerStateManager, marker: EndMarker, offset: int) -> None:
        known = self.get(marker.producer_id)
        record(
            self, marker if known is None else marker._replace(producer_epoch=known.epoch), offset
        )

    record = ProducerStateManager.record_marker
    return [(ProducerStateManager, "record_marker", record_marker)]


def _next_epoch() -> list[Replacement]:
    def end(self: TransactionMetadata, *about: Any) -> TransactionMetadata:
        return ended(self, *about)._replace(epoch=self.epoch)

    ended = TransactionMetadata.ended_in_next_epoch
    return [(TransactionMetadata, "ended_in_next_epoch", end)]


def _previous_end() -> list[Replacement]:
    def at_once(found: TransactionMetadata | None, *about: Any) -> Decision:
        decision = add(found, *about)
        if found is not None and found.is_prepared and isinstance(decision, Refused):
            return Done(found)
        return decision

    add = transaction_decisions.add_partitions
    return [(transaction_decisions, "add_partitions", at_once)]


def _added_partitions() -> list[Replacement]:
    def begins(self: TransactionVerification, hosted: Any, batch: TransactionBatch) -> bool:
        return batch.support is not TransactionSupport.ADDED and asks(self, hosted, batch)

    asks = TransactionVerification._begins
    return [(TransactionVerification, "_begins", begins)]


TRANSACTION_MUTANTS: Final = [
    Mutant(
        "truncated-transactions",
        "what a truncation takes back of transactions",
        _truncated_transactions,
    ),
    Mutant(
        "coordinator-fence", "the refusal of markers of former coordinators", _coordinator_epoch
    ),
    Mutant("committed-markers", "that a marker counts once it is committed", _committed_markers),
    Mutant("marker-fences", "that a marker's epoch becomes the producer's", _transaction_fence),
    Mutant("next-epoch", "that an end begins the producer's next epoch (KIP-890)", _next_epoch),
    Mutant(
        "previous-end",
        "that no partition is added before the previous end is complete (KIP-890)",
        _previous_end,
    ),
    Mutant(
        "added-partitions",
        "that a leader has the partition of a first batch added (KIP-890)",
        _added_partitions,
    ),
]
