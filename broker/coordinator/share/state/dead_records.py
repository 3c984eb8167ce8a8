"""Records that leave a share group without being accepted: its dead letter topic gets them
(KIP-1191)."""

from enum import StrEnum
from typing import NamedTuple


class DeathReason(StrEnum):
    """Why a record is dead. The values are what Kafka writes into the dead letter."""

    REJECTED = "Offset rejected by client."
    DELIVERED_TOO_OFTEN = "Offset delivery count exceeded the threshold."


class DeadRecords(NamedTuple):
    """The records from ``first`` to ``last``, which were delivered ``delivery_count`` times and are
    dead for the same reason."""

    first: int
    last: int
    delivery_count: int
    reason: DeathReason

    @property
    def records(self) -> int:
        return self.last - self.first + 1
