"""Brokers that only register, keep their sessions alive and watch the metadata, in one process.

They speak the quorum's protocol themselves: a thousand whole clients would take more than a core.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, Final

import uvloop

from quorate.common.files.open_files import allow_many_files
from quorate.common.types import BrokerId, Endpoint, SessionId
from quorate.metadata_log.codec import encode_transaction
from quorate.metadata_log.features import NEWEST_METADATA_VERSION
from quorate.metadata_log.records import BrokerRegistration, Operation, Transaction
from quorate.quorum.client.watch import HEARTBEAT_MAX_MS, watch_request
from quorate.quorum.keep_alive_intervals import interval_to_keep_ms
from quorate.quorum.voter_channels import open_channel, stub_of
from quorate_proto.v1 import quorum_pb2 as pb

SESSION_TIMEOUT_MS: Final = 60_000
"""Long, because all of them share a core; keep-alives come as often as with the default, and with
up to 1,000 sessions the leader names the same interval.
"""

_AT_ONCE: Final = 10


@contextmanager
def stub_sessions(leader: str, count: int) -> Iterator[None]:
    """``count`` registered brokers, which live until the context ends."""
    context = get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_serve, args=(leader, count, there), daemon=True)
    process.start()
    there.close()
    try:
        here.recv()
        yield
    finally:
        here.close()
        process.terminate()
        process.join()


def _serve(leader: str, count: int, pipe: Connection) -> None:
    allow_many_files(4 * count + 1_000)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_live(leader, count, pipe))


async def _live(leader: str, count: int, pipe: Connection) -> None:
    limit = asyncio.Semaphore(_AT_ONCE)
    brokers = [_Broker(leader, number) for number in range(1, count + 1)]
    await asyncio.gather(*(broker.register(limit) for broker in brokers))
    pipe.send(None)
    await asyncio.gather(*(broker.live() for broker in brokers))


class _Broker:
    def __init__(self, leader: str, broker_id: int) -> None:
        self._id = broker_id
        self._stub = stub_of(open_channel(leader))
        self._session_id = SessionId(b"")
        self._transact: Any = None

    async def register(self, limit: asyncio.Semaphore) -> None:
        async with limit:
            opened = await self._stub.OpenSession(
                pb.OpenSessionRequest(
                    timeout_ms=SESSION_TIMEOUT_MS, description=f"broker {self._id}"
                )
            )
            self._session_id = SessionId(opened.session_id)
            self._transact = self._stub.Transact()
            frame = pb.TransactFrame(transactions=[self._registration()], request_ids=[1])
            await self._transact.write(frame)
            reply = await self._transact.read()
            assert isinstance(reply, pb.TransactReplyFrame), "the registration was not taken"

    def _registration(self) -> bytes:
        record = BrokerRegistration(
            broker_id=BrokerId(self._id),
            session_id=self._session_id,
            incarnation_id=self._id.to_bytes(16, "big"),
            kafka=Endpoint("127.0.0.1", 9092),
            grpc=Endpoint("127.0.0.1", 9192),
            metadata_version_max=NEWEST_METADATA_VERSION,
        )
        return encode_transaction(
            Transaction(
                operations=(Operation(records=(record,)),),
                client_id=self._session_id,
                sequence=1,
                from_client=True,
            )
        )

    async def live(self) -> None:
        await asyncio.gather(self._keep_alive(), self._watch())

    async def _keep_alive(self) -> None:
        call: Any = self._stub.KeepAlive()
        sequence = 0
        while True:
            sequence += 1
            await call.write(pb.KeepAliveRequest(session_id=self._session_id, sequence=sequence))
            answer = await call.read()
            assert not answer.not_leader, "the leader changed"
            assert answer.alive, "the session is gone"
            interval_ms = interval_to_keep_ms(SESSION_TIMEOUT_MS, answer.interval_ms)
            await asyncio.sleep(interval_ms / 1000)

    async def _watch(self) -> None:
        call: Any = self._stub.Watch(watch_request(heartbeat_max_ms=HEARTBEAT_MAX_MS))
        while isinstance(await call.read(), pb.WatchEvent):
            pass
