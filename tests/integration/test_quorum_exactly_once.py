"""A transaction is applied once, however often it is sent, and wherever to."""

import asyncio
from pathlib import Path

import grpc
import pytest

from quorate.common.types import SessionId
from quorate.metadata_log.codec import encode_transaction, result_from_proto, result_to_proto
from quorate.metadata_log.records import Operation, ResultCode, Transaction, TransactionResult
from quorate.quorum.client.pending_transactions import read_columns
from quorate.quorum.client.quorum_client import QuorumClient
from quorate.quorum.quorum_errors import TransactionTooLarge
from quorate.quorum.voter_channels import open_channel, stub_of
from quorate_proto.v1 import quorum_pb2 as pb
from tests.integration.quorum_writes import Writer, image_now, new_key, opening, write
from tests.support.quorum_cluster import QuorumCluster, connected

pytestmark = pytest.mark.integration


async def send(address: str, *transactions: bytes) -> list[pb.TransactReply]:
    """Replies of one voter, in the order of the transactions."""
    async with open_channel(address) as channel:
        call = stub_of(channel).Transact()
        ids = list(range(len(transactions)))
        await call.write(pb.TransactFrame(transactions=transactions, request_ids=ids))
        replies: dict[int, pb.TransactReply] = {}
        while len(replies) < len(transactions):
            frame = await call.read()
            assert isinstance(frame, pb.TransactReplyFrame)
            replies |= {reply.request_id: reply for reply in frame.replies}
            replies |= {
                request_id: pb.TransactReply(request_id=request_id, result=result_to_proto(result))
                for request_id, result in read_columns(frame.taken_effect)
            }
        await call.done_writing()
        return [replies[number] for number in ids]


def transaction(client: QuorumClient, key: SessionId, sequence: int, low_water: int = 0) -> bytes:
    return encode_transaction(
        Transaction(
            operations=(opening(key),),
            client_id=client.session_id,
            sequence=sequence,
            low_water=low_water,
        )
    )


def result_of(reply: pb.TransactReply) -> TransactionResult:
    assert reply.status == pb.TRANSACT_DONE
    return result_from_proto(reply.result)


async def test_retry_gets_the_first_result_also_from_the_next_leader(tmp_path: Path) -> None:
    with QuorumCluster(tmp_path) as quorum:
        async with connected(quorum) as client:
            sent = transaction(client, new_key(), 1_000)
            leader = quorum.wait_for_leader()
            first = result_of((await send(quorum.address(leader), sent))[0])
            again, twice = await send(quorum.address(leader), sent, sent)
            assert first.ok
            assert result_of(again) == result_of(twice) == first
            quorum.kill(leader)
            next_leader = await asyncio.to_thread(quorum.wait_for_leader)
            assert result_of((await send(quorum.address(next_leader), sent))[0]) == first


async def test_retry_below_the_low_water_mark_is_never_applied(tmp_path: Path) -> None:
    with QuorumCluster(tmp_path, voters=1) as quorum:
        async with connected(quorum) as client:
            old, new, late = new_key(), new_key(), new_key()
            await send(
                quorum.address(1),
                transaction(client, old, 1_000),
                transaction(client, new, 1_005, low_water=1_003),
            )
            (reply,) = await send(quorum.address(1), transaction(client, late, 1_002))
            assert result_of(reply).results[0].code is ResultCode.OUTCOME_UNKNOWN
            assert late not in (await image_now(client)).sessions


async def test_results_outlive_a_restart(tmp_path: Path) -> None:
    settings = {
        "metadata.log.max.records.between.snapshots": 50,
        "metadata.log.retained.records": 5,
    }
    with QuorumCluster(tmp_path, voters=1, settings=settings) as quorum:
        async with connected(quorum) as client:
            sent = transaction(client, new_key(), 10_000)
            first = result_of((await send(quorum.address(1), sent))[0])
            async with connected(quorum) as other:
                await write(other, 200)
            quorum.kill(1)
            quorum.start_all()
            assert result_of((await send(quorum.address(1), sent))[0]) == first


@pytest.mark.slow
async def test_writes_under_leader_changes_are_applied_once(tmp_path: Path) -> None:
    """A second apply of one of these would be refused: the key exists. The writer asserts ok."""
    with QuorumCluster(tmp_path) as quorum:
        async with connected(quorum) as client:
            writers = [Writer(client) for _ in range(20)]
            for _ in range(3):
                await writers[0].wait_for_more()
                killed = await asyncio.to_thread(quorum.wait_for_leader)
                quorum.kill(killed)
                await asyncio.to_thread(quorum.wait_for_leader)
                await writers[0].wait_for_more()
                quorum.start(killed)
                await asyncio.to_thread(quorum.wait_for_leader)
            for writer in writers:
                assert not writer._task.done(), writer._task.exception()
                await writer.stop()
            assert sum(writer.uncertain for writer in writers) == 0
            assert sum(len(writer.acknowledged) for writer in writers) > 100


async def test_follower_names_the_leader(tmp_path: Path) -> None:
    with QuorumCluster(tmp_path) as quorum:
        async with connected(quorum) as client:
            leader = quorum.wait_for_leader()
            follower = next(each for each in quorum.voter_ids if each != leader)
            quorum.wait_until_known(follower, leader)
            (reply,) = await send(quorum.address(follower), transaction(client, new_key(), 1_000))
            assert (reply.status, reply.leader_id) == (pb.TRANSACT_NOT_LEADER, leader)


async def test_what_cannot_be_a_transaction_is_refused(tmp_path: Path) -> None:
    with QuorumCluster(tmp_path, voters=1) as quorum:
        async with connected(quorum) as client:
            noise, large = await send(quorum.address(1), b"\xff" * 20, b"x" * (1 << 20) + b"y")
            assert noise.status == pb.TRANSACT_INVALID
            assert large.status == pb.TRANSACT_TOO_LARGE
            operations = [opening(new_key()) for _ in range(40_000)]
            with pytest.raises(TransactionTooLarge, match="split it"):
                await client.transact(operations)
            await write(client)
            quorum.kill(1)
            quorum.start_all()
            await write(client)  # The noise is in the log; replaying it harms nobody.


async def test_operations_stand_alone_unless_atomic(tmp_path: Path) -> None:
    with QuorumCluster(tmp_path, voters=1) as quorum:
        async with connected(quorum) as client:
            taken, free = new_key(), new_key()
            await client.transact([opening(taken)])
            operations: list[Operation] = [opening(taken), opening(free)]
            result = await client.transact(operations)
            assert [item.code for item in result.results] == [
                ResultCode.CONDITION_FAILED,
                ResultCode.ABORTED,
            ]
            result = await client.transact(operations, atomic=False)
            assert [item.ok for item in result.results] == [False, True]


async def test_foreign_cluster_is_refused(tmp_path: Path) -> None:
    with QuorumCluster(tmp_path, voters=1) as quorum:
        async with open_channel(quorum.address(1)) as channel:
            request = pb.OpenSessionRequest(cluster_id="another", timeout_ms=1_000)
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await stub_of(channel).OpenSession(request, timeout=5)
            assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
