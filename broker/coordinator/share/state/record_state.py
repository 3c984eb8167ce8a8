"""The states of records in a share-partition (KIP-932), and ranges of records in one state.

AVAILABLE ── handed out ──▶ ACQUIRED ── accepted ──▶ ACKNOWLEDGED
    ▲                          │ └────── rejected, or delivered too often ──▶ ARCHIVED
    └── released, or too late ─┘
"""

from enum import IntEnum
from typing import Final, NamedTuple

NOBODY: Final = ""
"""A member id that no member has."""
NEVER_MS: Final = 1 << 62
DELIVERY_COUNT_MAX: Final = 2**15 - 1
"""The greatest delivery count of the wire and of the log. Only records whose dead letters cannot be
written come near it, because they stay in the group (KIP-1191)."""


class RecordState(IntEnum):
    """The state of a record. The numbers are those of the log and of the wire."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4

    @property
    def is_final(self) -> bool:
        """Whether the record is never handed out again."""
        return self >= RecordState.ACKNOWLEDGED


class StateBatch(NamedTuple):
    """Records from ``first`` to ``last`` in one state, as the share coordinator keeps them."""

    first: int
    last: int
    state: RecordState
    delivery_count: int


class AcquiredRecords(NamedTuple):
    """Records that were handed to a member, each for the ``delivery_count``-th time."""

    first: int
    last: int
    delivery_count: int

    @property
    def records(self) -> int:
        return self.last - self.first + 1


class Condition(NamedTuple):
    """A leader's knowledge of a record. Records in a row that have it in common are a range.

    ``becoming`` is the state to come while its change is being written, or else None. Nothing else
    happens to the record meanwhile.
    """

    state: RecordState
    delivery_count: int = 0
    member_id: str = NOBODY
    locked_until_ms: int = NEVER_MS
    becoming: RecordState | None = None

    @property
    def is_available(self) -> bool:
        return self.state is RecordState.AVAILABLE

    @property
    def coming(self) -> RecordState:
        """The state once what is being written is written."""
        return self.state if self.becoming is None else self.becoming

    @property
    def is_locked(self) -> bool:
        """Whether a member has the record, and nothing is being written about it."""
        return self.state is RecordState.ACQUIRED and self.becoming is None

    @property
    def is_over(self) -> bool:
        """Whether the record is final, and that is written."""
        return self.state.is_final and self.becoming is None

    def locked(self, member_id: str, until_ms: int) -> "Condition":
        """Return the condition of a record that is handed to a member."""
        count = min(self.delivery_count + 1, DELIVERY_COUNT_MAX)
        return Condition(RecordState.ACQUIRED, count, member_id, until_ms)

    def entered(self, state: RecordState) -> "Condition":
        """Return the condition in a state in which no member has the record. A final record needs
        no delivery count."""
        return _FINAL[state] if state.is_final else Condition(state, self.delivery_count)


_FINAL: Final = {state: Condition(state) for state in RecordState if state.is_final}


class RecordRange(NamedTuple):
    """The records from ``first`` to ``last``, and what they have in common."""

    first: int
    last: int
    condition: Condition

    @property
    def records(self) -> int:
        return self.last - self.first + 1
