"""Control requests at a broker: fenced, in order, passed on."""

import asyncio
from typing import Any

from quorate.broker.control.broker_control_service import BrokerControlService, ControlFence
from quorate.broker.metadata.metadata_cache import MetadataCache
from quorate.broker.metadata.metadata_follower import MetadataFollower
from quorate.common.types import BrokerEpoch, ControllerEpoch, MetadataOffset
from quorate.metadata_log.image import Changes, Image
from quorate_proto.v1 import control_pb2, errors_pb2
from tests.support.identities import registered
from tests.support.virtual_time import pass_time

NO_CONTEXT: Any = None


class Replicas:
    """Takes its time, and keeps the order of what it did."""

    def __init__(self) -> None:
        self.began: list[int] = []
        self.ended: list[int] = []
        self.inits: list[Image] = []
        self.may_go_on = asyncio.Event()

    async def _do(self, epoch: int) -> list[control_pb2.PartitionOutcome]:
        self.began.append(epoch)
        await self.may_go_on.wait()
        self.ended.append(epoch)
        return [control_pb2.PartitionOutcome(topic="orders", partition=0)]

    async def apply_leader_and_isr(
        self, request: control_pb2.LeaderAndIsrRequest
    ) -> list[control_pb2.PartitionOutcome]:
        return await self._do(request.header.controller_epoch)

    async def apply_init(self, image: Image) -> list[control_pb2.PartitionOutcome]:
        self.inits.append(image)
        return []

    async def stop_replicas(
        self, request: control_pb2.StopReplicaRequest
    ) -> list[control_pb2.PartitionOutcome]:
        return await self._do(request.header.controller_epoch)


class Broker:
    def __init__(self) -> None:
        self.identity = registered(1, 5)
        self.replicas = Replicas()
        self.cache = MetadataCache()
        self.follower = follower = MetadataFollower(None)  # type: ignore[arg-type]
        self.service = BrokerControlService(
            identity=self.identity,
            replicas=self.replicas,
            cache=self.cache,
            images=follower,
            fence=ControlFence(),
        )

    async def lead(self, controller_epoch: int) -> control_pb2.LeaderAndIsrResponse:
        request = control_pb2.LeaderAndIsrRequest(header=_header(controller_epoch))
        return await self.service.LeaderAndIsr(request, NO_CONTEXT)

    async def update(self, offset: int, *topics: str, controller_epoch: int = 1) -> int:
        request = control_pb2.UpdateMetadataRequest(
            header=_header(controller_epoch, metadata_offset=offset),
            full=True,
            topics=[control_pb2.TopicMetadata(topic=topic) for topic in topics],
        )
        return (await self.service.UpdateMetadata(request, NO_CONTEXT)).error_code


def _header(controller_epoch: int, metadata_offset: int = 0) -> control_pb2.ControlHeader:
    return control_pb2.ControlHeader(
        controller_epoch=controller_epoch,
        max_broker_epoch=5,
        broker_epoch=-1,
        metadata_offset=metadata_offset,
    )


async def test_c17_e3_requests_wait_their_turn_and_are_fenced_at_it() -> None:
    broker = Broker()
    first = asyncio.create_task(broker.lead(1))
    second = asyncio.create_task(broker.lead(1))
    await pass_time(1)
    assert broker.replicas.began == [1], "the second waits for the first"
    await broker.update(1, controller_epoch=2)
    broker.replicas.may_go_on.set()
    assert (await first).error_code == errors_pb2.NONE
    answer = await second
    assert answer.error_code == errors_pb2.STALE_CONTROLLER_EPOCH, "a newer one spoke meanwhile"
    assert answer.controller_epoch == 2, "tells the deposed one"
    assert broker.replicas.ended == [1]


async def test_c20_outcomes_are_per_partition() -> None:
    broker = Broker()
    broker.replicas.may_go_on.set()
    answer = await broker.lead(1)
    assert [(one.topic, one.error_code) for one in answer.partitions] == [("orders", 0)]
    request = control_pb2.StopReplicaRequest(header=_header(1))
    assert len((await broker.service.StopReplica(request, NO_CONTEXT)).partitions) == 1


async def test_c20_responses_name_the_version_that_they_answer() -> None:
    broker = Broker()
    broker.replicas.may_go_on.set()
    header = _header(1)
    header.version = 5
    leading = control_pb2.LeaderAndIsrRequest(header=header)
    assert (await broker.service.LeaderAndIsr(leading, NO_CONTEXT)).version_id == 5
    header.version = 4
    stopping = control_pb2.StopReplicaRequest(header=header)
    assert (await broker.service.StopReplica(stopping, NO_CONTEXT)).version_id == 4
    header.controller_epoch = 0
    refused = await broker.service.StopReplica(
        control_pb2.StopReplicaRequest(header=header), NO_CONTEXT
    )
    assert (refused.error_code, refused.version_id) == (errors_pb2.STALE_CONTROLLER_EPOCH, 4)


async def test_b2_nothing_is_obeyed_before_the_own_epoch_is_known() -> None:
    broker = Broker()
    broker.replicas.may_go_on.set()
    broker.identity.unregister()
    assert (await broker.lead(1)).error_code == errors_pb2.STALE_BROKER_EPOCH
    assert await broker.update(1, "orders") == errors_pb2.STALE_BROKER_EPOCH
    assert not broker.replicas.began
    assert not broker.cache.topics
    broker.identity.register(BrokerEpoch(5))
    assert await broker.update(1, "orders") == errors_pb2.NONE
    assert set(broker.cache.topics) == {"orders"}


async def test_b2_metadata_from_an_older_image_is_dropped_without_an_error() -> None:
    broker = Broker()
    assert await broker.update(7, "new") == errors_pb2.NONE
    assert await broker.update(6, "old") == errors_pb2.NONE
    assert set(broker.cache.topics) == {"new"}


async def test_e3_the_watched_controller_epoch_counts() -> None:
    broker = Broker()
    image = Image(controller_epoch=ControllerEpoch(3))
    broker.follower._advance(image, Changes(controller=True), MetadataOffset(1))
    assert (await broker.lead(2)).error_code == errors_pb2.STALE_CONTROLLER_EPOCH
