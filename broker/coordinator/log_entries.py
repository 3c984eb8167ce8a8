"""What stands in one partition of a coordinator's topic: records, and how transactions ended."""

from collections.abc import Sequence
from typing import NamedTuple


class LogRecord(NamedTuple):
    """``value`` None: a tombstone."""

    key: bytes
    value: bytes | None

    @property
    def size(self) -> int:
        return len(self.key) + len(self.value or b"")


class TransactionOwner(NamedTuple):
    """Whose transaction records are part of: they count when its marker says so."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class LogBatch(NamedTuple):
    """Records that stand at base offset ``place``; ``producer_id`` None: in no transaction."""

    place: int
    records: Sequence[LogRecord]
    producer_id: int | None = None


class TransactionEnd(NamedTuple):
    """The marker at offset ``place`` ends what that producer has written before it."""

    place: int
    producer_id: int
    committed: bool
