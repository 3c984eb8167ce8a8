"""Two clients of ZooKeeper: kazoo, which programs use, and one that costs next to nothing."""

import asyncio
import time
from collections.abc import Awaitable
from typing import Final

from kazoo.client import KazooClient

from bench.peers.closed_loop import Done, await_writes, call_back_writes
from bench.peers.contender import LEAVES, BatchClient, key, leaves, value
from bench.peers.zookeeper_client import ZooKeeperClient

_SESSION_TIMEOUT_S: Final = 30.0


class KazooWriter(BatchClient):
    """One session; the callback of each ``set_async`` starts the next."""

    def __init__(self, port: int) -> None:
        self._kazoo = KazooClient(f"127.0.0.1:{port}", timeout=_SESSION_TIMEOUT_S)
        self._kazoo.start()

    async def close(self) -> None:
        self._kazoo.stop()
        self._kazoo.close()

    async def write_for(self, seconds: float, in_flight: int) -> list[float]:
        return await asyncio.to_thread(call_back_writes, self._start_set, seconds, in_flight)

    def _start_set(self, number: int, done: Done) -> None:
        result = self._kazoo.set_async(key(number), value(number).encode())
        result.rawlink(lambda finished: done(finished.exception))

    async def update_leaves(self, version: int) -> float:
        pairs = next(leaves(LEAVES, version))
        started = time.perf_counter()
        multi = self._kazoo.transaction()
        for name, content in pairs:
            multi.set_data(name, content.encode())
        for result in multi.commit():
            if isinstance(result, Exception):
                raise result
        return (time.perf_counter() - started) * 1000


class BareWriter(BatchClient):
    """One session of a ``ZooKeeperClient``."""

    def __init__(self, client: ZooKeeperClient) -> None:
        self._client = client

    async def close(self) -> None:
        await self._client.close()

    async def write_for(self, seconds: float, in_flight: int) -> list[float]:
        return await await_writes(self._write, seconds, in_flight)

    def _write(self, number: int) -> Awaitable[None]:
        return self._client.set_data(key(number), value(number))

    async def update_leaves(self, version: int) -> float:
        pairs = next(leaves(LEAVES, version))
        started = time.perf_counter()
        await self._client.set_all(pairs)
        return (time.perf_counter() - started) * 1000
