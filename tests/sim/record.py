"""The record: the one log that is committed, kept by the simulation itself.

An entry is in it from the moment that any voter takes it for committed, and it never changes again.
"""

from typing import NamedTuple

from quorate.common.types import MetadataOffset, SessionId
from quorate.metadata_log.apply import apply
from quorate.metadata_log.codec import MalformedTransaction, decode_transaction
from quorate.metadata_log.image import Image
from quorate.metadata_log.records import TransactionResult
from quorate.quorum.raft.network.raft_frames import REGULAR
from quorate.quorum.raft.storage.journal import RaftEntry
from tests.sim.world import Violation


class Recorded(NamedTuple):
    """One committed entry, and what it does."""

    term: int
    command: bytes
    result: TransactionResult | None


class Record:
    """The committed log. Index 1 is the library's own first entry."""

    def __init__(self) -> None:
        self.entries: dict[int, Recorded] = {}
        self.last_index = 1
        self.images: dict[int, Image] = {0: Image()}
        """The state after each transaction, by its metadata offset."""
        self.image = Image()
        self.effects: dict[tuple[SessionId, int], int] = {}
        """(client, sequence) to the offset at which it took effect."""

    def append(self, entry: RaftEntry) -> None:
        command, index, term = entry
        result = self._effect_of(index, command)
        self.entries[index] = Recorded(term, command, result)
        self.last_index = index

    def transactions(self, after: int, through: int) -> list[int]:
        """Offsets of the transactions in that range."""
        through = min(through, self.last_index)
        return [
            offset
            for offset in range(after + 1, through + 1)
            if offset in self.entries and self.entries[offset].result is not None
        ]

    def _effect_of(self, index: int, command: bytes) -> TransactionResult | None:
        if command[0] != REGULAR:
            return None
        try:
            transaction = decode_transaction(command[1:])
        except MalformedTransaction:
            return None
        before = self.image
        applied = apply(before, MetadataOffset(index), transaction)
        self.image = applied.image
        self.images[index] = applied.image
        took_effect = applied.result.offset == index and applied.result.ok
        if transaction.client_id and took_effect:
            key = (transaction.client_id, transaction.sequence)
            if key in self.effects:
                raise Violation(
                    f"exactly-once: sequence {key[1]} of client {key[0].hex()[:8]} took effect at "
                    f"{self.effects[key]} and again at {index}"
                )
            self.effects[key] = index
        return applied.result
