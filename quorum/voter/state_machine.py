"""The replicated state: the metadata image, changed by committed transactions alone. On the raft
thread.

The metadata offset of a transaction is its Raft index. Applied transactions are collected until the
driver's round ends, and then handed over in one piece.
"""

from collections.abc import Iterable, Sequence, Set
from typing import Final, NamedTuple, cast

import msgspec

from quorate.common.types import MetadataOffset
from quorate.metadata_log.apply import apply_run
from quorate.metadata_log.codec import MalformedTransaction, decode_transaction
from quorate.metadata_log.features import NEWEST_METADATA_VERSION, why_unreadable
from quorate.metadata_log.image import Image, VoterSet
from quorate.metadata_log.packed_partitions import PackedPartitions
from quorate.metadata_log.reader import AppliedEntry
from quorate.metadata_log.records import Transaction, TransactionResult
from quorate.metadata_log.snapshot.snapshot import decode_snapshot, encode_snapshot
from quorate.quorum.raft.guards import SafetyViolation

_CHUNK_BYTES: Final = 16 << 10
"""About 2,000 partitions: a millisecond of encoding, after which other threads have their turn."""


class AppliedSince(NamedTuple):
    """The changes of the state since the last call."""

    image: Image
    entries: Sequence[AppliedEntry]
    installed_at: int | None
    """The offset of a snapshot that replaced the state, before ``entries``, or None if there was
    none.
    """


class QuorumStateMachine:
    """Implements ``quorate.quorum.raft.raft_node.ReplicatedState``."""

    def __init__(self) -> None:
        self.image = Image()
        self._entries: list[AppliedEntry] = []
        self._installed_at: int | None = None

    def apply_run(self, commands: Sequence[tuple[int, bytes]]) -> list[TransactionResult | None]:
        """Return each transaction's result. A command that is no transaction has None, on every
        voter alike.
        """
        entries = cast("Sequence[AppliedEntry]", commands)
        transactions: list[tuple[MetadataOffset, Transaction]] = []
        malformed: set[MetadataOffset] = set()
        for offset, command in entries:
            try:
                transactions.append((offset, decode_transaction(command)))
            except MalformedTransaction:
                malformed.add(offset)
        before = self.image
        after, results, changes = apply_run(before, transactions)
        self.image = _packing(after, changes.topics)
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
        return decode_snapshot(chunks, packed=True)

    def install(self, index: int, state: Image) -> None:
        _require_readable(state)
        self.image = state
        self._entries = []
        self._installed_at = index

    def take_applied(self) -> AppliedSince:
        """Return what was applied since the last call."""
        applied = AppliedSince(self.image, self._entries, self._installed_at)
        self._entries = []
        self._installed_at = None
        return applied


def _packing(image: Image, written: Set[str]) -> Image:
    """Return the image with all these topics as ``PackedPartitions``: the rules make tuples."""
    topics = image.topics
    for name in written:
        topic = topics.get(name)
        if topic is not None and isinstance(topic.partitions, tuple):
            packed = PackedPartitions.of(topic.partitions)
            topics = topics.set(name, msgspec.structs.replace(topic, partitions=packed))
    return image if topics is image.topics else msgspec.structs.replace(image, topics=topics)


def _require_readable(image: Image) -> None:
    """Stop a voter that could not read all records, before it comes to another state (B4)."""
    if why := why_unreadable(image, NEWEST_METADATA_VERSION):
        raise SafetyViolation(why)


def is_transaction(command: bytes) -> bool:
    """Return whether ``apply_run`` took the command for a transaction; others are never shown to a
    watcher.
    """
    try:
        decode_transaction(command)
    except MalformedTransaction:
        return False
    return True
