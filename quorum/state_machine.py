"""The replicated state: the metadata image, changed by committed transactions alone.

On the raft thread. The metadata offset of a transaction is its Raft index. What was applied is
collected until the driver's round ends, and then handed over in one piece.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, cast

from metadata_log.apply import apply_run
from metadata_log.codec import MalformedTransaction, decode_transaction
from metadata_log.features import NEWEST_METADATA_VERSION, metadata_version
from metadata_log.image import Image, VoterSet
from metadata_log.reader import AppliedEntry
from metadata_log.records import Transaction, TransactionResult
from metadata_log.snapshot import decode_snapshot, encode_snapshot
from metadata_log.types import MetadataOffset
from quorum.raft.guards import SafetyViolation

_CHUNK_BYTES: Final = 16 << 10
"""About 2,000 partitions: a millisecond of encoding, after which other threads have their turn."""


class AppliedSince(NamedTuple):
    """What happened to the state since it was last asked."""

    image: Image
    entries: Sequence[AppliedEntry]
    installed_at: int | None
    """A snapshot of this offset replaced the state, and ``entries`` came after it."""


class QuorumStateMachine:
    """Implements ``quorum.raft.node.ReplicatedState``."""

    def __init__(self) -> None:
        self.image = Image()
        self._entries: list[AppliedEntry] = []
        self._installed_at: int | None = None

    def apply_run(self, commands: Sequence[tuple[int, bytes]]) -> list[TransactionResult | None]:
        """Each transaction's result; None for what is no transaction, on every voter alike."""
        entries = cast("Sequence[AppliedEntry]", commands)
        transactions: list[tuple[MetadataOffset, Transaction]] = []
        malformed: set[MetadataOffset] = set()
        for offset, command in entries:
            try:
                transactions.append((offset, decode_transaction(command)))
            except MalformedTransaction:
                malformed.add(offset)
        before = self.image
        self.image, results, _ = apply_run(before, transactions)
        if self.image.features is not before.features:
            _require_readable(self.image)
        if not malformed:
            self._entries += entries
            return [*results]
        self._entries += [entry for entry in entries if entry[0] not in malformed]
        of_transactions = iter(results)
        return [None if entry[0] in malformed else next(of_transactions) for entry in entries]

    @property
    def voter_set(self) -> VoterSet:
        return self.image.voter_set

    def snapshot_chunks(self) -> Iterable[bytes]:
        return encode_snapshot(self.image, _CHUNK_BYTES)

    def decode(self, chunks: Iterable[bytes]) -> Image:
        return decode_snapshot(chunks)

    def install(self, index: int, state: Image) -> None:
        _require_readable(state)
        self.image = state
        self._entries = []
        self._installed_at = index

    def take_applied(self) -> AppliedSince:
        """What was applied since the last call."""
        applied = AppliedSince(self.image, self._entries, self._installed_at)
        self._entries = []
        self._installed_at = None
        return applied


def _require_readable(image: Image) -> None:
    """A voter that could not read all records stops, rather than come to another state (B4)."""
    level = metadata_version(image)
    if level > NEWEST_METADATA_VERSION:
        raise SafetyViolation(
            f"the quorum writes records of metadata_version {level}, and this voter reads "
            f"{NEWEST_METADATA_VERSION} at most: install the newer version on it"
        )


def is_transaction(command: bytes) -> bool:
    """Whether ``apply_run`` took it for one: what it did not is never shown to a watcher."""
    try:
        decode_transaction(command)
    except MalformedTransaction:
        return False
    return True
