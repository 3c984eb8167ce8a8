"""Replies of transactions that took effect, in columns: what nearly every reply is.

A protobuf message per transaction and operation, written and read again, costs several times what
applying it does. Both directions are here so that they cannot drift apart.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import cast

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
        ok = ResultCode.OK
        for request_id, result in zip(request_ids, results, strict=True):
            if result is None:
                left.append((request_id, result))
                continue
            operations = result.results
            if len(operations) == 1 and operations[0].code is ok:  # Nearly all.
                self._versions.append(operations[0].version)
            elif all([one.code is ok for one in operations]):
                self._versions += [one.version for one in operations]
            else:
                left.append((request_id, result))
                continue
            self._request_ids.append(request_id)
            self._offsets.append(result.offset)
            self._operations.append(len(operations))
        return left

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
    offsets = cast("Iterable[MetadataOffset]", taken.offsets)
    end = 0
    for request_id, offset, operations in zip(
        taken.request_ids, offsets, taken.operations, strict=True
    ):
        start, end = end, end + operations
        results: tuple[OperationResult, ...]
        if operations == 1 and start < len(versions):  # Nearly all.
            results = (OperationResult(version=versions[start]),)
        else:
            results = tuple([OperationResult(version=v) for v in versions[start:end]])
        yield request_id, TransactionResult(offset=offset, results=results)
    if end != len(versions):
        raise ValueError(f"{len(versions)} versions of {end} operations")
