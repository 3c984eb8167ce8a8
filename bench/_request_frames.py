"""Requests as Java's clients and librdkafka put them on the wire, made ahead, so that a client in
Python sends them faster than a broker answers them.
"""

import struct
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from crc32c import crc32c

from tests.support.kafka_wire import Values, record_batch, request_frame, sized

PRODUCE: Final = (0, 9)
LIBRDKAFKA_FETCH: Final = (1, 11)
"""librdkafka names every partition in every Fetch: it has no fetch sessions."""
JAVA_FETCH: Final = (1, 12)
INIT_PRODUCER_ID: Final = (22, 4)
"""An API and the version that is sent."""

CLIENT_ID: Final = "bench"
_ACKS_ALL: Final = -1
_TIMEOUT_MS: Final = 30_000
_FETCH_WAIT_MS: Final = 10_000
_FETCH_MAX_BYTES: Final = 50 << 20
_PARTITION_MAX_BYTES: Final = 1 << 20
_CRC_AT: Final = 17
_CRC_FROM: Final = 21
_PRODUCER_AT: Final = 43
_PRODUCER: Final = struct.Struct(">qhi")
_CRC: Final = struct.Struct(">I")
_OFFSET: Final = struct.Struct(">q")
_SOME_OFFSET: Final = 0x1122334455667788
_SESSION: Final = struct.Struct(">ii")
_SESSION_AT: Final = 4 + 8 + 2 + len(CLIENT_ID) + 1 + 17
"""The place of session id and epoch in a Fetch of version 12, with the size of the frame."""

NextFrame = Callable[[], bytes]


def frame(api: tuple[int, int], values: Values) -> bytes:
    """Return a whole request."""
    return sized(request_frame(*api, values, client_id=CLIENT_ID))


def batch(records: int, record_bytes: int) -> bytes:
    """Return a batch with records of this size, as a producer sends it now."""
    return record_batch(records, bytes(record_bytes), int(time.time() * 1000))


def produce(topic: str, batches: Sequence[bytes]) -> bytes:
    """Return a Produce request with a batch for each of the first partitions of the topic."""
    partitions = [{"index": index, "records": each} for index, each in enumerate(batches)]
    return frame(
        PRODUCE,
        {
            "transactional_id": None,
            "acks": _ACKS_ALL,
            "timeout": _TIMEOUT_MS,
            "topic_data": [{"name": topic, "partition_data": partitions}],
        },
    )


def idempotent(topic: str, one: bytes, records: int, producer_id: int) -> NextFrame:
    """Return a function that makes the next request of an idempotent producer at each call."""
    request = bytearray(produce(topic, [one]))
    at = request.index(one)
    sequence = 0

    def following() -> bytes:
        nonlocal sequence
        _PRODUCER.pack_into(request, at + _PRODUCER_AT, producer_id, 0, sequence)
        checksum = crc32c(memoryview(request)[at + _CRC_FROM : at + len(one)])
        _CRC.pack_into(request, at + _CRC_AT, checksum)
        sequence += records
        return bytes(request)

    return following


def fetch(
    api: tuple[int, int],
    topic: str,
    offsets: Mapping[int, int],
    *,
    session: tuple[int, int] = (0, -1),
) -> bytes:
    """Return a Fetch request that waits for one byte at least.

    ``offsets`` is where to read on in each partition. ``session`` is its id and epoch.
    """
    wanted = [
        {
            "partition": partition,
            "current_leader_epoch": -1,
            "fetch_offset": offset,
            "last_fetched_epoch": -1,
            "log_start_offset": -1,
            "partition_max_bytes": _PARTITION_MAX_BYTES,
        }
        for partition, offset in offsets.items()
    ]
    return frame(
        api,
        {
            "replica_id": -1,
            "max_wait": _FETCH_WAIT_MS,
            "min_bytes": 1,
            "max_bytes": _FETCH_MAX_BYTES,
            "isolation_level": 0,
            "session_id": session[0],
            "session_epoch": session[1],
            "topics": [{"topic": topic, "partitions": wanted}],
            "forgotten_topics_data": [],
            "rack_id": "",
        },
    )


def in_session(session_id: int, requests: Sequence[bytes]) -> NextFrame:
    """Return a function that makes the next request of a session at each call.

    ``requests`` are Fetch requests of version 12, which are sent in turn. The session has just
    begun.
    """
    frames = [bytearray(each) for each in requests]
    epoch = 0

    def following() -> bytes:
        nonlocal epoch
        epoch += 1
        request = frames[epoch % len(frames)]
        _SESSION.pack_into(request, _SESSION_AT, session_id, epoch)
        return bytes(request)

    return following


class LongPoll:
    """A consumer that has read everything, and asks for what comes next in partition 0."""

    def __init__(self, topic: str, session_id: int, read: Sequence[int]) -> None:
        """``read`` are the partitions of the session, each with one record that was read."""
        request = fetch(JAVA_FETCH, topic, dict.fromkeys(read, 1))
        self._first: bytearray | None = bytearray(request)
        self._request = bytearray(fetch(JAVA_FETCH, topic, {0: _SOME_OFFSET}))
        self._offset_at = self._request.index(_OFFSET.pack(_SOME_OFFSET))
        self._session_id = session_id
        self._epoch = 0

    def following(self) -> bytes:
        """Return the next request. It names the partitions that were read since the last."""
        request, self._first = self._first or self._request, None
        self._epoch += 1
        _SESSION.pack_into(request, _SESSION_AT, self._session_id, self._epoch)
        if request is self._request:
            _OFFSET.pack_into(request, self._offset_at, self._epoch)
        return bytes(request)
