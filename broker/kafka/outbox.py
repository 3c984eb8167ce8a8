"""One connection's answers on their way out: what the client does not read is not handed over.

A transport buffers whatever it is given, and one with TLS encrypts it all at once. So a large
answer goes out in slices, the next one when the transport has room, and until the last one has left
the answer's memory counts as held.
"""

import asyncio
from collections import deque
from typing import Final

from broker.client_memory import AnswerLease, ResponseMemory
from broker.kafka.requests import Buffers

_JOINED_BYTES_MAX: Final = 16 << 10
"""Answers up to this size are joined and written as one piece; larger ones are not copied."""

SLICE_BYTES: Final = 2 << 20
"""Large enough that what a slice costs is nothing to what its bytes cost."""


class Outbox:
    """Takes one answer at a time: the next one only while ``is_free``."""

    __slots__ = ("_buffered_bytes", "_lease", "_moved", "_paused", "_transport", "_unsent")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._unsent: deque[bytes | memoryview] | None = None
        self._lease = AnswerLease(ResponseMemory())
        self._paused = False
        self._buffered_bytes = 0
        """Of the transport, when last looked at while it was paused."""
        self._moved = False

    @property
    def is_free(self) -> bool:
        return not self._paused and not self._unsent

    @property
    def has_unsent(self) -> bool:
        """Whether the transport is yet to be given some of an answer."""
        return bool(self._unsent)

    @property
    def held_bytes(self) -> int:
        return self._lease.held_bytes

    def write(self, answer: Buffers, lease: AnswerLease) -> None:
        """``lease`` is kept until the answer has left, and let go then."""
        size = sum(map(len, answer))
        if size <= _JOINED_BYTES_MAX:
            self._transport.write(b"".join(answer))
            lease.keep(0)
            return
        lease.keep(size)
        self._lease = lease
        if size <= SLICE_BYTES:
            self._transport.writelines(answer)
        else:
            self._unsent = deque(answer)
        self._send()

    def pause(self) -> None:
        """The transport has enough for now."""
        self._paused = True
        self._buffered_bytes = self._transport.get_write_buffer_size()

    def resume(self) -> None:
        """The transport has room."""
        self._paused = False
        self._moved = True
        self._send()

    def close(self) -> None:
        """Nothing more leaves."""
        self._unsent = None
        self._lease.keep(0)

    def has_moved(self) -> bool:
        """Whether the client has read anything since this was asked last."""
        before, self._buffered_bytes = self._buffered_bytes, self._transport.get_write_buffer_size()
        moved, self._moved = self._moved, False
        return moved or before != self._buffered_bytes

    def _send(self) -> None:
        while self._unsent and not self._paused:
            self._transport.writelines(_cut_slice(self._unsent))
        if self.is_free:
            self._lease.keep(0)


def _cut_slice(pieces: deque[bytes | memoryview]) -> Buffers:
    """Takes up to ``SLICE_BYTES`` from the front of ``pieces``."""
    cut: Buffers = []
    room = SLICE_BYTES
    while pieces and room > 0:
        piece = pieces.popleft()
        if len(piece) > room:
            view = memoryview(piece)
            pieces.appendleft(view[room:])
            piece = view[:room]
        cut.append(piece)
        room -= len(piece)
    return cut
