"""A ``RequestTask`` begins at once, waits for futures, and tells of its end at once."""

import asyncio

import pytest

from quorate.broker.kafka.connection.request_task import RequestTask
from quorate.broker.kafka.wire.primitives import Buffers


async def test_what_needs_no_wait_is_done_at_once() -> None:
    async def answer() -> Buffers:
        return [b"at once"]

    task = RequestTask(answer())
    assert task.done()
    assert task.result() == [b"at once"]


async def test_it_goes_on_when_what_it_waits_for_is_done() -> None:
    first: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    ended: list[RequestTask] = []

    async def answer() -> Buffers:
        begun = await first
        await asyncio.sleep(0)
        return [begun]

    task = RequestTask(answer())
    task.add_done_callback(ended.append)
    assert not task.done()
    first.set_result(b"later")
    for _ in range(3):
        await asyncio.sleep(0)
    assert ended == [task]
    assert task.result() == [b"later"]


async def test_cancelling_reaches_what_it_waits_for() -> None:
    never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    cleaned_up = []

    async def answer() -> Buffers:
        try:
            await never
        finally:
            cleaned_up.append(True)
        return []

    task = RequestTask(answer())
    assert task.cancel()
    await asyncio.sleep(0)
    assert cleaned_up
    assert task.cancelled()
    with pytest.raises(asyncio.CancelledError):
        task.result()


async def test_an_error_is_told_without_the_frame_of_the_task() -> None:
    async def answer() -> Buffers:
        raise ValueError("wrong")

    task = RequestTask(answer())
    error = task.exception()
    assert isinstance(error, ValueError)
    assert error.__traceback__ is not None
    assert error.__traceback__.tb_frame.f_code.co_name == "answer"
    with pytest.raises(ValueError, match="wrong"):
        task.result()
