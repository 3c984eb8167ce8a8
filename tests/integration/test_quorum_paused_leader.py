"""SIGSTOP of the quorum's leader: its connections stay open, and one day it goes on."""

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest

from quorate.metadata_log.codec import encode_transaction
from quorate.metadata_log.records import Transaction
from quorate.quorum.voter_channels import open_channel, stub_of
from quorate_proto.v1 import quorum_pb2 as pb
from tests.integration.quorum_writes import Writer, image_now, new_key, opening, write
from tests.support.quorum_cluster import QuorumCluster, connected
from tests.support.waiting import async_wait_until

pytestmark = pytest.mark.integration

PATIENCE_S = 10.0
"""A machine that runs other tests as well takes longer than the rule; for ever is what fails."""


async def test_p14_clients_read_and_write_again_soon_after_the_leader_is_stopped(
    tmp_path: Path,
) -> None:
    """0.6 s as a rule: an election, and a client that has asked the others by then."""
    with QuorumCluster(tmp_path) as quorum:
        async with connected(quorum) as client:
            writer = Writer(client)
            await writer.wait_for_more()
            leader = await asyncio.to_thread(quorum.wait_for_leader)
            writer.reset_gap()
            quorum.pause(leader)
            before = len(writer.acknowledged)
            reading_s = asyncio.get_running_loop().time()
            await client.read_offset()
            assert asyncio.get_running_loop().time() - reading_s < PATIENCE_S
            await async_wait_until(
                lambda: len(writer.acknowledged) >= before + 20, "20 writes", timeout_s=PATIENCE_S
            )
            assert writer.longest_gap_s < PATIENCE_S
            quorum.resume(leader)
            await writer.stop()
            assert set(writer.acknowledged) <= set((await image_now(client)).sessions)


async def test_p14_leader_that_was_stopped_serves_nothing_stale(tmp_path: Path) -> None:
    """What was sent to it meanwhile lies in its sockets, and so do old acknowledgements."""
    with QuorumCluster(tmp_path) as quorum:
        async with connected(quorum) as client:
            await write(client, 20)
            old = await asyncio.to_thread(quorum.wait_for_leader)
            async with open_channel(quorum.address(old)) as channel:
                stub = stub_of(channel)
                keep_alives, transact = stub.KeepAlive(), stub.Transact()
                await keep_alives.write(pb.KeepAliveRequest(session_id=client.session_id))
                first = await keep_alives.read()
                assert isinstance(first, pb.KeepAliveResponse)
                assert first.alive
                quorum.pause(old)
                key = new_key()
                late = encode_transaction(Transaction(operations=(opening(key),)))
                await keep_alives.write(pb.KeepAliveRequest(session_id=client.session_id))
                await transact.write(pb.TransactFrame(transactions=[late], request_ids=[7]))
                read = asyncio.ensure_future(stub.Read(pb.ReadRequest(linearizable=True)))
                newest = max((await write(client, 20)).values())
                quorum.resume(old)
                async with asyncio.timeout(10):
                    assert await offset_or_refusal(read) >= newest
                    reply = await transact.read()
                    answer = await answered(keep_alives, client.session_id)
                assert isinstance(reply, pb.TransactReplyFrame)
                (status,) = [one.status for one in reply.replies]
                assert status in (pb.TRANSACT_NOT_LEADER, pb.TRANSACT_UNKNOWN)
                assert isinstance(answer, pb.KeepAliveResponse)
                assert (answer.alive, answer.not_leader) == (False, True)
                keep_alives.cancel()
                transact.cancel()
            assert key not in (await image_now(client)).sessions


async def answered(keep_alives: Any, session_id: bytes) -> Any:  # noqa: ANN401 - a gRPC stream
    """The next answer to keep-alives that go on: a leader that does not know whether it still is
    one answers none, also not later."""
    answer = asyncio.ensure_future(keep_alives.read())
    while not answer.done():
        await keep_alives.write(pb.KeepAliveRequest(session_id=session_id))
        await asyncio.wait([answer], timeout=0.2)
    return answer.result()


async def offset_or_refusal(read: "asyncio.Future[pb.ReadResponse]") -> float:
    """The offset read; infinite if the voter refused to say."""
    try:
        return (await read).offset
    except grpc.aio.AioRpcError as error:
        if error.code() is not grpc.StatusCode.UNAVAILABLE:
            raise
        return float("inf")
