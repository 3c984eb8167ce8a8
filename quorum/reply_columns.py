"""Replies of transactions that took effect, in columns: what nearly every reply is.

A protobuf message per transaction and operation, written and read again, costs several times what
applying it does. Both directions are here so that they cannot drift apart.
"""

from collections.abc import Iterator, Sequence

from metadata_log.records import OperationResult, ResultCode, TransactionResult
from metadata_log.types import MetadataOffset
from quorate_proto.v1 import quorum_pb2 as pb


class ReplyColumns:
    """The results of one frame of replies; those that do not fit are left to their own message."""

    def __init__(self) -> None:
        self._request_ids: list[int] = []
        self._offsets: list[int] = []
        self._operations: list[int] = []
        self._versions: list[int] = []

    def take(
        self, request_ids: Sequence[int], results: Sequence[TransactionResult | None]
    ) -> list[tuple[int, TransactionResult | None]]:
        """Add these results; returns those that have no place here.

        They are the ones with a refused operation, and those of what was no transaction: None.
        """
        left: list[tuple[int, TransactionResult | None]] = []
        for request_id, result in zip(request_ids, results, strict=True):
            if result is None or not self._take_versions(result.results):
                left.append((request_id, result))
                continue
            self._request_ids.append(request_id)
            self._offsets.append(result.offset)
            self._operations.append(len(result.results))
        return left

    def _take_versions(self, results: Sequence[OperationResult]) -> bool:
        """False, and nothing added, if an operation was refused."""
        if len(results) == 1:
            if results[0].code is not ResultCode.OK:
                return False
            self._versions.append(results[0].version)
            return True
        if any(one.code is not ResultCode.OK for one in results):
            return False
        self._versions += [one.version for one in results]
        return True

    def to_proto(self) -> pb.TakenEffect | None:
        """None if nothing was taken."""
        if not self._request_ids:
            return None
        return pb.TakenEffect(
            request_ids=self._request_ids,
            offsets=self._offsets,
            operations=self._operations,
            versions=self._versions,
        )


def read_columns(taken: pb.TakenEffect) -> Iterator[tuple[int, TransactionResult]]:
    """(request id, result) of each transaction.

    Raises:
        ValueError: the columns are not of equal length.
    """
    versions = list(taken.versions)
    end = 0
    for request_id, offset, operations in zip(
        taken.request_ids, taken.offsets, taken.operations, strict=True
    ):
        start, end = end, end + operations
        yield (
            request_id,
            TransactionResult(
                offset=MetadataOffset(offset),
                results=tuple([OperationResult(version=v) for v in versions[start:end]]),
            ),
        )
    if end != len(versions):
        raise ValueError(f"{len(versions)} versions of {end} operations")
