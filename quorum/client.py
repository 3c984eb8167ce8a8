"""The client of the quorum: a session, transactions, reads and watches."""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import NamedTuple

from quorate_proto.v1.quorum_pb2 import QuorumStatusResponse

from metadata_log.image import Image
from metadata_log.records import Operation, Transaction, TransactionResult
from metadata_log.types import MetadataOffset, SessionId


class SnapshotLoaded(NamedTuple):
    image: Image


class TransactionsApplied(NamedTuple):
    transactions: list[tuple[MetadataOffset, Transaction]]
    applied_offset: MetadataOffset


WatchEvent = SnapshotLoaded | TransactionsApplied


class QuorumClient:
    def __init__(
        self,
        addresses: Sequence[str],
        *,
        description: str,
        session_timeout_ms: int,
        cluster_id: str = "",
    ) -> None: ...

    async def start(self, *, deadline_ms: int | None = None) -> None: ...
    async def close(self) -> None: ...
