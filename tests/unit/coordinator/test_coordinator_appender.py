"""Whoever has something written to a coordinator's log is told what became of it."""

import asyncio
import gc
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from quorate.broker.common.errors import KafkaError
from quorate.broker.coordinator.shards.coordinator_appender import CoordinatorAppender
from quorate.broker.coordinator.shards.coordinator_records import (
    LogBatch,
    LogRecord,
    TransactionEnd,
    TransactionOwner,
)
from quorate.broker.coordinator.shards.led_partition import LedPartition
from quorate_proto.v1 import errors_pb2


class BrokenLog(LedPartition):
    """It fails in a way that nobody has thought of."""

    def __init__(self) -> None:
        pass

    async def append(
        self, records: Sequence[LogRecord], transaction: TransactionOwner | None = None
    ) -> int:
        raise ZeroDivisionError("not predicted_image")

    async def replay(self) -> AsyncIterator[LogBatch | TransactionEnd]:
        nothing: tuple[LogBatch, ...] = ()
        for entry in nothing:
            yield entry


async def test_nobody_waits_for_ever_for_what_failed_unforeseen() -> None:
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    outcomes = [
        CoordinatorAppender(BrokenLog()).append([LogRecord(b"key", b"value")]) for _ in range(2)
    ]
    for outcome in outcomes:
        with pytest.raises(KafkaError, match="not predicted_image") as told:
            await outcome
        assert told.value.code == errors_pb2.UNKNOWN_SERVER_ERROR
    await asyncio.sleep(0)
    gc.collect()
    assert {type(one["exception"]) for one in reported} == {ZeroDivisionError}
