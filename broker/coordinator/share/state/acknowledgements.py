"""What a member says of records that it has (KIP-932): accepted, released, rejected, or renewed."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from quorate.broker.common.errors import KafkaError
from quorate.broker.coordinator.share.state.record_state import RecordState
from quorate_proto.v1 import errors_pb2

GAP: Final = 0
"""There is no record at the offset that the member can use, such as that of a marker."""
ACCEPT: Final = 1
RELEASE: Final = 2
REJECT: Final = 3
RENEW: Final = 4
"""The member needs more time (KIP-1222)."""

STATE_OF: Final = {
    GAP: RecordState.ARCHIVED,
    ACCEPT: RecordState.ACKNOWLEDGED,
    RELEASE: RecordState.AVAILABLE,
    REJECT: RecordState.ARCHIVED,
}
"""The state that records come to, by the type of their acknowledgement."""


class AcknowledgementBatch(NamedTuple):
    """Records from ``first`` to ``last``, and what the member says of them.

    ``types`` has one byte for all of them, or a byte for each.
    """

    first: int
    last: int
    types: bytes

    @property
    def records(self) -> int:
        return self.last - self.first + 1

    def runs(self) -> Iterator[tuple[int, int, int]]:
        """Yield the first and the last offset of records in a row that have the same type, and the
        type."""
        if len(self.types) == 1:
            yield self.first, self.last, self.types[0]
            return
        first = self.first
        for kind, same in groupby(self.types):
            last = first + len(list(same)) - 1
            yield first, last, kind
            first = last + 1


def check_batches(batches: Sequence[AcknowledgementBatch], *, renews: bool) -> None:
    """Check what can be checked without the state of the partition. ``renews`` says whether the
    request may renew.

    Raises:
        KafkaError: INVALID_REQUEST.
    """
    most = RENEW if renews else REJECT
    before = -1
    for batch in batches:
        reason = _fault_of(batch, before, most)
        if reason:
            message = f"acknowledgement of {batch.first} to {batch.last}: {reason}"
            raise KafkaError(errors_pb2.INVALID_REQUEST, message)
        before = batch.last


def _fault_of(batch: AcknowledgementBatch, before: int, most: int) -> str | None:
    if batch.first < 0 or batch.last < batch.first:
        return "it ends before it begins"
    if batch.first <= before:
        return "batches must be in order, and must not overlap"
    if len(batch.types) not in (1, batch.records):
        return f"{len(batch.types)} types for {batch.records} records: one for all, or one for each"
    if max(batch.types) > most:
        return f"type {max(batch.types)} is none of 0 to {most}"
    return None
