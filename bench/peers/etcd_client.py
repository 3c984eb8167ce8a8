"""grpcio as a client of etcd, by its futures and callbacks.

At 1,000 in flight they carry nearly twice what ``grpc.aio`` does. Messages are put together by
hand: bytes in, bytes out.
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

import grpc

from bench.peers.closed_loop import Done, call_back_writes
from bench.peers.contender import LEAVES, BatchClient, key, leaves, value

if TYPE_CHECKING:
    _Call = grpc.UnaryUnaryMultiCallable[bytes, bytes]

MAX_REQUEST_BYTES: Final = 8 << 20
PUT: Final = "/etcdserverpb.KV/Put"
_TXN: Final = "/etcdserverpb.KV/Txn"
_OPTIONS: Final = (
    ("grpc.max_send_message_length", MAX_REQUEST_BYTES),
    ("grpc.enable_retries", 0),
)
_TRY_EVERY_S: Final = 0.02
_TRY_FOR_S: Final = 2.0
_GIVE_UP_S: Final = 30.0


class EtcdClient(BatchClient):
    """One channel to one node."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.insecure_channel(address, _OPTIONS)
        self._put = _method(self._channel, PUT)
        self._txn = _method(self._channel, _TXN)

    async def close(self) -> None:
        self._channel.close()

    async def write_for(self, seconds: float, in_flight: int) -> list[float]:
        return await asyncio.to_thread(call_back_writes, self._start_put, seconds, in_flight)

    def _start_put(self, number: int, done: Done) -> None:
        call = self._put.future(put_request(key(number), value(number)))
        call.add_done_callback(lambda finished: done(finished.exception()))

    async def update_leaves(self, version: int) -> float:
        pairs = next(leaves(LEAVES, version))
        started = time.perf_counter()
        self.put_all(pairs)
        return (time.perf_counter() - started) * 1000

    def put_all(self, pairs: Iterable[tuple[str, str]]) -> None:
        """One transaction."""
        self._txn(txn_request([put_request(*pair) for pair in pairs]))


def write_through(addresses: Sequence[str]) -> None:
    """A put to each of ``addresses`` every 20 ms, until one is acknowledged.

    Raises:
        TimeoutError: none is, for long.
    """
    request = put_request(key(0), value(0))
    acknowledged = threading.Event()

    def finished(call: "grpc.Future[bytes]") -> None:
        if not call.cancelled() and call.exception() is None:
            acknowledged.set()

    deadline = time.monotonic() + _GIVE_UP_S
    with contextlib.ExitStack() as stack:
        channels = [stack.enter_context(grpc.insecure_channel(each)) for each in addresses]
        puts = [_method(channel, PUT) for channel in channels]
        while not acknowledged.is_set():
            if time.monotonic() > deadline:
                raise TimeoutError(f"no write to {addresses} within {_GIVE_UP_S:g} s")
            for put in puts:
                put.future(request, timeout=_TRY_FOR_S).add_done_callback(finished)
            acknowledged.wait(_TRY_EVERY_S)


def put_request(name: str, content: str) -> bytes:
    """``PutRequest``: key 1, value 2."""
    return _field(1, name.encode()) + _field(2, content.encode())


def txn_request(puts: Iterable[bytes]) -> bytes:
    """``TxnRequest`` without conditions: success 2, each a ``RequestOp`` with request_put 2."""
    return b"".join([_field(2, _field(2, put)) for put in puts])


def _method(channel: grpc.Channel, name: str) -> "_Call":
    return channel.unary_unary(name, request_serializer=None, response_deserializer=None)


def _field(number: int, content: bytes) -> bytes:
    """A length-delimited field."""
    header = bytearray((number << 3 | 2,))
    length = len(content)
    while length >= 0x80:
        header.append(length & 0x7F | 0x80)
        length >>= 7
    header.append(length)
    return bytes(header) + content
