"""Clients that a broker has to live with: idle ones, slow ones, deaf ones, and very large requests.

Each kind runs in a process of its own for as long as ``hostile`` is open. They speak Kafka by hand:
a client library would not behave like that.
"""

import asyncio
import contextlib
import multiprocessing
import socket
import struct
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from multiprocessing.synchronize import Event
from typing import Final, Literal

from tests.support.raw_client import (
    API_VERSIONS,
    FETCH,
    FETCH_VERSION,
    PRODUCE,
    PRODUCE_VERSION,
    frame,
    string,
)

Kind = Literal["idle", "slow", "deaf", "large"]

IDLE_CONNECTIONS: Final = 2_000
SLOW_CONSUMERS: Final = 50
DEAF_CLIENTS: Final = 50
REQUESTS_OF_A_DEAF_CLIENT: Final = 1_000
SLOW_READ_BYTES: Final = 10_000
SLOW_READ_EVERY_S: Final = 0.1
FETCH_BYTES: Final = 50 << 20
LARGE_REQUEST_BYTES: Final = 100_000_000
LARGE_REQUEST_EVERY_S: Final = 0.5
_RECEIVE_BUFFER_BYTES: Final = 64 << 10
_START_TIMEOUT_S: Final = 60.0
_SLICE_BYTES: Final = 256 << 10
_AT_ONCE: Final = 100
_ANSWER_TIMEOUT_S: Final = 30.0

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@contextlib.contextmanager
def hostile(kinds: Sequence[Kind], address: str, topic: str, partitions: int) -> Iterator[None]:
    """All clients of these kinds at work, each kind in its own process.

    That a broker drops them is fine.

    Raises:
        RuntimeError: they could not connect, or were no clients.
    """
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    started = {kind: context.Event() for kind in kinds}
    processes = [
        context.Process(target=_run, args=(kind, address, topic, partitions, event, stop))
        for kind, event in started.items()
    ]
    for process in processes:
        process.start()
    try:
        for kind, event in started.items():
            if not event.wait(_START_TIMEOUT_S):
                raise RuntimeError(f"the {kind} clients did not start at {address}")
        yield
    finally:
        stop.set()
        for process in processes:
            process.join()
    if failed := [kind for kind, process in zip(kinds, processes, strict=True) if process.exitcode]:
        raise RuntimeError(f"clients failed: {', '.join(failed)}")


def _run(
    kind: Kind, address: str, topic: str, partitions: int, started: Event, stop: Event
) -> None:
    asyncio.run(_all_of(kind, address, topic, partitions, started, stop))


async def _all_of(
    kind: Kind, address: str, topic: str, partitions: int, started: Event, stop: Event
) -> None:
    request = fetch_request(topic, partitions)
    behaviours: dict[Kind, tuple[int, Callable[[Streams], Awaitable[None]]]] = {
        "idle": (IDLE_CONNECTIONS, _be_idle),
        "slow": (SLOW_CONSUMERS, partial(_read_slowly, request=request)),
        "deaf": (DEAF_CLIENTS, partial(_never_read, request=request)),
        "large": (1, partial(_send_large, topic=topic)),
    }
    count, behave = behaviours[kind]
    connections: list[Streams] = []
    while len(connections) < count:
        some = min(_AT_ONCE, count - len(connections))
        connections += await asyncio.gather(*(_connect(address) for _ in range(some)))
    tasks = [asyncio.ensure_future(behave(streams)) for streams in connections]
    started.set()
    await asyncio.to_thread(stop.wait)
    for task in tasks:
        task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if not isinstance(result, asyncio.CancelledError | OSError | EOFError | None):
            raise result


async def _connect(address: str) -> Streams:
    """A connection with a small receive buffer, that has been answered once."""
    host, _, port = address.rpartition(":")
    plain = socket.socket()
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_BYTES)
    plain.setblocking(False)
    await asyncio.get_running_loop().sock_connect(plain, (host, int(port)))
    reader, writer = await asyncio.open_connection(sock=plain, limit=_RECEIVE_BUFFER_BYTES)
    writer.write(request_frame(API_VERSIONS, 0, b""))
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    await reader.readexactly(size)
    return reader, writer


async def _be_idle(_streams: Streams) -> None:
    await asyncio.Event().wait()


async def _read_slowly(streams: Streams, *, request: bytes) -> None:
    """Fetch as much as a broker gives, and take it at 100 KB/s."""
    reader, writer = streams
    while True:
        writer.write(request)
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        while size:
            size -= len(await reader.readexactly(min(size, SLOW_READ_BYTES)))
            await asyncio.sleep(SLOW_READ_EVERY_S)


async def _never_read(streams: Streams, *, request: bytes) -> None:
    """Ask until the broker takes no more, and read no answer."""
    _, writer = streams
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    for _ in range(REQUESTS_OF_A_DEAF_CLIENT):
        writer.write(request)
        await writer.drain()
    await asyncio.Event().wait()


async def _send_large(streams: Streams, *, topic: str) -> None:
    """100 MB at once, again and again, on a new connection whenever the broker ends one."""
    request = memoryview(produce_request(topic, bytes(LARGE_REQUEST_BYTES)))
    host, port = streams[1].get_extra_info("peername")
    while True:
        reader, writer = streams
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, TimeoutError):
            async with asyncio.timeout(_ANSWER_TIMEOUT_S):
                for start in range(0, len(request), _SLICE_BYTES):
                    writer.write(request[start : start + _SLICE_BYTES])
                    await writer.drain()
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                await reader.readexactly(size)
        await asyncio.sleep(LARGE_REQUEST_EVERY_S)
        if reader.at_eof() or writer.is_closing():
            streams = await _connect(f"{host}:{port}")


def request_frame(api_key: int, version: int, body: bytes) -> bytes:
    """One request with its length."""
    return frame(struct.pack(">hhi", api_key, version, 1) + string("hostile") + body)


def fetch_request(topic: str, partitions: int) -> bytes:
    """All partitions from their beginning, 50 MiB of each and of all."""
    body = struct.pack(">iiiibi", -1, 500, 1, FETCH_BYTES, 0, 1) + string(topic)
    body += struct.pack(">i", partitions)
    body += b"".join(struct.pack(">iqi", p, 0, FETCH_BYTES) for p in range(partitions))
    return request_frame(FETCH, FETCH_VERSION, body)


def produce_request(topic: str, records: bytes) -> bytes:
    """Records that no broker takes: too many, and no batch."""
    body = struct.pack(">hhii", -1, 1, 10_000, 1) + string(topic)
    body += struct.pack(">iii", 1, 0, len(records)) + records
    return request_frame(PRODUCE, PRODUCE_VERSION, body)
