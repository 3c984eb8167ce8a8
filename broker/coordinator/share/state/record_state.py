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


class RecordRange:
    """The records from ``first`` to ``last``, which have everything in common.

    ``becoming`` is the state to come while its change is being written, or else None. Nothing else
    happens to the records meanwhile.
    """

    __slots__ = (
        "becoming",
        "delivery_count",
        "first",
        "last",
        "locked_until_ms",
        "member_id",
        "state",
    )

    def __init__(
        self,
        first: int,
        last: int,
        state: RecordState,
        delivery_count: int = 0,
        member_id: str = NOBODY,
        locked_until_ms: int = NEVER_MS,
    ) -> None:
        self.first = first
        self.last = last
        self.state = state
        self.delivery_count = delivery_count
        self.member_id = member_id
        self.locked_until_ms = locked_until_ms
        self.becoming: RecordState | None = None

    @property
    def records(self) -> int:
        return self.last - self.first + 1

    @property
    def is_available(self) -> bool:
        return self.state is RecordState.AVAILABLE

    @property
    def coming(self) -> RecordState:
        """The state once what is being written is written."""
        return self.state if self.becoming is None else self.becoming

    @property
    def is_locked(self) -> bool:
        """Whether a member has the records, and nothing is being written about them."""
        return self.state is RecordState.ACQUIRED and self.becoming is None

    def split_off(self, offset: int) -> "RecordRange":
        """Return a range of the records from ``offset`` on, and keep those before it."""
        rest = RecordRange(
            offset,
            self.last,
            self.state,
            self.delivery_count,
            self.member_id,
            self.locked_until_ms,
        )
        rest.becoming = self.becoming
        self.last = offset - 1
        return rest

    def lock(self, member_id: str, until_ms: int) -> None:
        """Hand the records to a member."""
        self.state = RecordState.ACQUIRED
        self.delivery_count = min(self.delivery_count + 1, DELIVERY_COUNT_MAX)
        self.member_id, self.locked_until_ms = member_id, until_ms

    def enter(self, state: RecordState) -> None:
        """Come to a state in which no member has the records."""
        self.state, self.becoming = state, None
        self.member_id, self.locked_until_ms = NOBODY, NEVER_MS

    def merges_with(self, other: "RecordRange") -> bool:
        """Return whether both can be one range. Final records need no delivery count."""
        if self.state is not other.state or self.becoming is not None or other.becoming is not None:
            return False
        if self.state.is_final:
            return True
        return self.is_available and self.delivery_count == other.delivery_count
