"""Producer ids come in blocks and are never handed out twice."""

import asyncio

import pytest

from quorate.broker.common.errors import KafkaError
from quorate.broker.control.controller_forwarder import ControllerForwarder
from quorate.broker.coordinator.transactions.producer_ids import ProducerIds
from quorate_proto.v1 import admin_pb2, errors_pb2


class Controller(ControllerForwarder):
    """Hands out blocks of three."""

    def __init__(self) -> None:
        self.blocks = 0
        self.error_code = errors_pb2.NONE

    async def allocate_producer_ids(
        self, *_: object, **__: object
    ) -> admin_pb2.AllocateProducerIdsResponse:
        await asyncio.sleep(0)
        if self.error_code:
            return admin_pb2.AllocateProducerIdsResponse(error_code=self.error_code)
        self.blocks += 1
        return admin_pb2.AllocateProducerIdsResponse(first_producer_id=self.blocks * 100, count=3)


async def test_concurrent_producers_share_a_block_and_no_id() -> None:
    controller = Controller()
    ids = ProducerIds(controller)
    taken = await asyncio.gather(*(ids.take() for _ in range(7)))
    assert sorted(taken) == [100, 101, 102, 200, 201, 202, 300]
    assert controller.blocks == 3


async def test_a_failed_block_is_asked_for_again() -> None:
    controller = Controller()
    ids = ProducerIds(controller)
    controller.error_code = errors_pb2.REQUEST_TIMED_OUT
    with pytest.raises(KafkaError, match="REQUEST_TIMED_OUT") as refusal:
        await ids.take()
    assert refusal.value.code == errors_pb2.COORDINATOR_LOAD_IN_PROGRESS
    controller.error_code = errors_pb2.NONE
    assert await ids.take() == 100
