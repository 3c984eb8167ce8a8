"""Responses leave in slices, as fast as the client reads, and hold memory until they have left."""

import asyncio
from typing import cast

from quorate.broker.kafka.connection.response_queue import SLICE_BYTES, ResponseWriter
from quorate.broker.kafka.wire.primitives import Buffers
from quorate.broker.quota.client_memory import ResponseLease, ResponseMemory


class SlowTransport:
    """A transport that holds its data until the test reads it."""

    def __init__(self) -> None:
        self.outbox: ResponseWriter
        self.given: list[bytes] = []
        self.unread_bytes = 0
        self.pauses = True

    def write(self, data: bytes) -> None:
        self.writelines([data])

    def writelines(self, buffers: Buffers) -> None:
        self.given.append(b"".join(buffers))
        if self.pauses:
            self.unread_bytes += len(self.given[-1])
            if self.unread_bytes > 64 << 10:
                self.outbox.pause()

    def read(self) -> None:
        """The client reads all that there is."""
        self.unread_bytes = 0
        self.outbox.resume()

    def get_write_buffer_size(self) -> int:
        return self.unread_bytes


def made() -> tuple[ResponseWriter, SlowTransport, ResponseMemory]:
    transport = SlowTransport()
    transport.outbox = outbox = ResponseWriter(cast("asyncio.Transport", transport))
    return outbox, transport, ResponseMemory(1 << 30)


def test_the_next_slice_goes_out_when_the_one_before_was_read() -> None:
    outbox, transport, memory = made()
    pieces: Buffers = [b"header", bytes(range(256)) * (SLICE_BYTES // 100), b"tail"]
    outbox.write(pieces, ResponseLease(memory))
    size = sum(map(len, pieces))
    slices = 1
    while not outbox.is_free:
        assert outbox.has_unsent == (slices * SLICE_BYTES < size)
        assert memory.held_bytes == size
        assert len(transport.given) == slices
        assert max(map(len, transport.given)) <= SLICE_BYTES
        transport.read()
        slices += 1
    assert b"".join(transport.given) == b"".join(pieces)
    assert memory.held_bytes == 0


def test_a_client_that_reads_gets_all_at_once() -> None:
    outbox, transport, memory = made()
    transport.pauses = False
    outbox.write([bytes(5 * SLICE_BYTES)], ResponseLease(memory))
    assert outbox.is_free
    assert memory.held_bytes == 0
    assert sum(map(len, transport.given)) == 5 * SLICE_BYTES


def test_what_was_reserved_for_a_small_answer_is_given_back_at_once() -> None:
    outbox, _, memory = made()
    lease = ResponseLease(memory)
    lease.reserve(1 << 20)
    outbox.write([b"small"], lease)
    assert memory.held_bytes == 0


def test_a_lost_connection_holds_nothing() -> None:
    outbox, transport, memory = made()
    outbox.write([bytes(3 * SLICE_BYTES)], ResponseLease(memory))
    assert memory.held_bytes == 3 * SLICE_BYTES
    outbox.close()
    assert memory.held_bytes == 0
    assert not outbox.has_unsent
    assert len(transport.given) == 1


def test_a_client_moves_if_it_reads_some_or_if_it_has_read_all() -> None:
    outbox, transport, memory = made()
    outbox.write([bytes(3 * SLICE_BYTES)], ResponseLease(memory))
    assert not outbox.has_moved()
    transport.unread_bytes -= 1
    assert outbox.has_moved()
    assert not outbox.has_moved()
    transport.read()
    assert outbox.has_moved()
    assert not outbox.has_moved()
