"""The answer to a Fetch, in every version: the log's own buffers between headers, not copied."""

import struct
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

from broker.kafka.codec import append_uvarint
from broker.kafka.fetch_request import FIRST_FLEXIBLE_VERSION, NO_SESSION
from broker.kafka.requests import Buffers
from broker.log.aborted_transactions import AbortedTransaction
from broker.replication.api import FetchOutcome
from quorate_proto.v1 import errors_pb2

_FIRST_VERSION_WITH_SESSIONS: Final = 7
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_PARTITION: Final = struct.Struct(">ihqq")
_THROTTLE_CODE_SESSION: Final = struct.Struct(">ihi")
_PRODUCER_FIRST_OFFSET: Final = struct.Struct(">qq")
_READ_COMMITTED: Final = 1
_NULL: Final = -1

TopicAnswers: TypeAlias = Iterable[tuple[str, Sequence[tuple[int, FetchOutcome]]]]
"""Topic by name, and of each of its partitions the outcome."""


def encode(
    version: int,
    isolation_level: int,
    topics: TopicAnswers = (),
    *,
    error_code: int = errors_pb2.NONE,
    session_id: int = NO_SESSION,
) -> Buffers:
    """The response body."""
    flexible = version >= FIRST_FLEXIBLE_VERSION
    answered = tuple(topics)
    out = _Gathered()
    if version >= _FIRST_VERSION_WITH_SESSIONS:
        out.small += _THROTTLE_CODE_SESSION.pack(0, error_code, session_id)
    else:
        out.small += _INT32.pack(0)
    _append_length(out.small, len(answered), flexible)
    for topic, partitions in answered:
        _append_name(out.small, topic, flexible)
        _append_length(out.small, len(partitions), flexible)
        for partition, outcome in partitions:
            _append_partition(out, version, isolation_level, partition, outcome)
        if flexible:
            out.small.append(0)
    if flexible:
        out.small.append(0)
    return out.buffers()


class _Gathered:
    """Header bytes collected in ``small``, records referred to in between."""

    def __init__(self) -> None:
        self.small = bytearray()
        self._buffers: Buffers = []

    def append_records(self, outcome: FetchOutcome) -> None:
        if outcome.chunks:
            self._buffers.append(bytes(self.small))
            self._buffers.extend(outcome.chunks)
            self.small.clear()

    def buffers(self) -> Buffers:
        return [*self._buffers, bytes(self.small)] if self.small else self._buffers


def _append_partition(
    out: _Gathered, version: int, isolation_level: int, partition: int, outcome: FetchOutcome
) -> None:
    flexible = version >= FIRST_FLEXIBLE_VERSION
    out.small += _PARTITION.pack(
        partition, outcome.error_code, outcome.high_watermark, outcome.last_stable_offset
    )
    if version >= 5:
        out.small += _INT64.pack(outcome.log_start_offset)
    if isolation_level == _READ_COMMITTED:
        _append_aborted(out.small, outcome.aborted_transactions, flexible)
    else:
        _append_length(out.small, _NULL, flexible)
    if version >= 11:
        out.small += _INT32.pack(outcome.preferred_read_replica)
    _append_length(out.small, outcome.size, flexible)
    out.append_records(outcome)
    if flexible:
        out.small.append(0)


def _append_aborted(out: bytearray, aborted: Sequence[AbortedTransaction], flexible: bool) -> None:
    _append_length(out, len(aborted), flexible)
    for each in aborted:
        out += _PRODUCER_FIRST_OFFSET.pack(each.producer_id, each.first_offset)
        if flexible:
            out.append(0)


def _append_length(out: bytearray, length: int, flexible: bool) -> None:
    """Of an array or of bytes; -1: null."""
    if flexible:
        append_uvarint(out, length + 1)
    else:
        out += _INT32.pack(length)


def _append_name(out: bytearray, name: str, flexible: bool) -> None:
    raw = name.encode()
    if flexible:
        append_uvarint(out, len(raw) + 1)
    else:
        out += struct.pack(">h", len(raw))
    out += raw
