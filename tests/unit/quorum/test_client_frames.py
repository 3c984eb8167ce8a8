"""How a client's transactions share frames when many callers write again at once."""

import asyncio

import pytest

from quorate.common.types import MetadataOffset
from quorate.metadata_log.records import OperationResult, TransactionResult
from quorate.quorum.client.leader_connection import REPLIES_AT_ONCE
from quorate.quorum.client.pending_transactions import ReplyColumns
from quorate_proto.v1 import quorum_pb2 as pb
from tests.support.waiting import async_wait_until
from tests.unit.quorum.test_client_doubt import Scene, run


def answers(request_ids: list[int]) -> pb.TransactReplyFrame:
    columns = ReplyColumns()
    result = TransactionResult(offset=MetadataOffset(1), results=(OperationResult(version=1),))
    assert columns.take(request_ids, [result] * len(request_ids)) == []
    return pb.TransactReplyFrame(taken_effect=columns.to_proto())


async def frames_of_callers(scene: Scene, callers: int) -> list[int]:
    """Sizes of the frames in which ``callers`` write again once all were answered."""

    async def write_twice() -> None:
        for _ in range(2):
            await scene.transact()

    tenure = await scene.begin()
    scene.answer_keep_alive()
    writing = [asyncio.create_task(write_twice()) for _ in range(callers)]
    await async_wait_until(lambda: scene.transactions.written, "a transaction")
    (first,) = scene.transactions.written
    assert list(first.request_ids) == list(range(1, callers + 1))
    scene.transactions.answers.put_nowait(answers(first.request_ids))
    await async_wait_until(lambda: scene.transactions.sent == 2 * callers, "all transactions")
    again = scene.transactions.written[1:]
    for frame in again:
        scene.transactions.answers.put_nowait(answers(frame.request_ids))
    await asyncio.gather(*writing)
    tenure.cancel()
    return [len(frame.request_ids) for frame in again]


def test_many_callers_write_again_in_several_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(scene: Scene) -> None:
        sizes = await frames_of_callers(scene, 8 * REPLIES_AT_ONCE)
        assert len(sizes) >= 3
        assert sum(sizes) == 8 * REPLIES_AT_ONCE

    run(test, monkeypatch)


def test_few_callers_share_one_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(scene: Scene) -> None:
        assert await frames_of_callers(scene, REPLIES_AT_ONCE) == [REPLIES_AT_ONCE]

    run(test, monkeypatch)
