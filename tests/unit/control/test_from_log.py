"""Control requests without content, at inter_broker_protocol 3: a broker's own image has it."""

import asyncio
from typing import Any

import msgspec
import pytest

from quorate.broker.control.broker_control_service import BrokerControlService, ControlFence
from quorate.broker.metadata.metadata_cache import MetadataCache
from quorate.broker.metadata.metadata_follower import MetadataFollower, changes_between
from quorate.common.types import BrokerEpoch, BrokerId, TopicPartition
from quorate.metadata_log.image import INTER_BROKER_PROTOCOL, Image
from quorate.metadata_log.records import ControllerRemoved, FeatureLevel, SessionOpened
from quorate_proto.v1 import control_pb2, errors_pb2
from tests.support.identities import registered
from tests.support.metadata import MetadataLogBuilder, session_of
from tests.support.virtual_time import pass_time
from tests.unit.control.test_service import Replicas

NO_CONTEXT: Any = None
ACK_TIMEOUT_MS = 2_000
ORDERS = TopicPartition("orders", 0)


class Broker:
    """Broker 1, which follows a metadata log that the test writes."""

    def __init__(self, level: int = 3) -> None:
        self.log = MetadataLogBuilder()
        for broker_id in (1, 2, 3):
            self.log.start_broker(broker_id)
            self.log.register_again(broker_id, inter_broker_protocol_max=3)
        self.log.elect_controller(2)
        self.log.admit_all()
        self.log.write_as_controller(FeatureLevel(name=INTER_BROKER_PROTOCOL, level=level))
        assert self.log.image.inter_broker_protocol == level
        epoch = self.log.image.brokers[BrokerId(1)].epoch
        self.identity = registered(1, epoch)
        self.replicas = Replicas()
        self.cache = MetadataCache()
        self.follower = MetadataFollower(None)  # type: ignore[arg-type]
        self.service = BrokerControlService(
            identity=self.identity,
            replicas=self.replicas,
            cache=self.cache,
            images=self.follower,
            fence=ControlFence(),
        )
        self.follow()

    def follow(self) -> None:
        """Have followed the log up to its end."""
        image = self.log.image
        changes = changes_between(self.follower.image, image)
        self.follower._advance(image, changes, image.offset)

    def header(self, image: Image, epoch: int | None = None) -> control_pb2.ControlHeader:
        return control_pb2.ControlHeader(
            controller_id=2,
            controller_epoch=image.controller_epoch if epoch is None else epoch,
            max_broker_epoch=image.max_broker_epoch,
            broker_epoch=-1,
            metadata_offset=image.offset,
            ack_timeout_ms=ACK_TIMEOUT_MS,
        )

    async def init(self, **header: int) -> int:
        request = control_pb2.LeaderAndIsrRequest(
            header=self.header(self.log.image, **header), is_init=True, from_log=True
        )
        return (await self.service.LeaderAndIsr(request, NO_CONTEXT)).error_code

    async def update(self) -> int:
        request = control_pb2.UpdateMetadataRequest(
            header=self.header(self.log.image), from_log=True
        )
        return (await self.service.UpdateMetadata(request, NO_CONTEXT)).error_code


async def test_c7_an_init_waits_until_the_image_is_as_new_as_the_controllers() -> None:
    """An older image would lack assignments, and their replicas would be set aside."""
    broker = Broker()
    broker.log.create_topic("orders", (1, 2))
    asked = asyncio.create_task(broker.init())
    await pass_time(1)
    assert not broker.replicas.inits
    broker.log.create_topic("later", (1, 2))
    broker.follow()
    assert await asked == errors_pb2.NONE
    (image,) = broker.replicas.inits
    assert set(image.topics) == {"orders", "later"}, "a newer image is as good"


async def test_c18_a_broker_that_is_behind_says_so_in_time() -> None:
    broker = Broker()
    broker.log.create_topic("orders", (1, 2))
    assert await broker.init() == errors_pb2.REQUEST_TIMED_OUT
    assert await broker.update() == errors_pb2.REQUEST_TIMED_OUT
    assert not broker.replicas.inits
    assert not broker.cache.topics
    broker.follow()
    assert await broker.init() == errors_pb2.NONE
    assert await broker.update() == errors_pb2.NONE


async def test_e3_a_controller_that_is_deposed_during_the_wait_is_refused() -> None:
    broker = Broker()
    broker.log.create_topic("orders", (1, 2))
    before = broker.log.image.controller_epoch
    asked = [asyncio.create_task(broker.init()), asyncio.create_task(broker.update())]
    await pass_time(0.1)
    broker.log.write(ControllerRemoved(broker_id=BrokerId(2)))
    broker.log.elect_controller(3)
    assert broker.log.image.controller_epoch > before
    broker.follow()
    assert await asyncio.gather(*asked) == [errors_pb2.STALE_CONTROLLER_EPOCH] * 2
    assert not broker.replicas.inits
    assert not broker.cache.topics


async def test_b2_a_broker_that_registers_again_during_the_wait_refuses() -> None:
    broker = Broker()
    broker.log.create_topic("orders", (1, 2))
    asked = asyncio.create_task(broker.init())
    await pass_time(0.1)
    broker.identity.register(BrokerEpoch(broker.log.image.max_broker_epoch + 1))
    broker.follow()
    assert await asked == errors_pb2.STALE_BROKER_EPOCH
    assert not broker.replicas.inits


async def test_b3_the_image_of_an_init_must_show_this_incarnation_as_admitted() -> None:
    """The image may be newer than the request: what this broker led before its restart has a new
    leader epoch only once the restart was dealt with."""
    broker = Broker()
    before = broker.log.image.brokers[BrokerId(1)].registration
    broker.log.stop_broker(1)
    session_id = session_of(1, 1)
    again = msgspec.structs.replace(
        before, session_id=session_id, incarnation_id=b"again".ljust(16)
    )
    broker.log.write(SessionOpened(session_id=session_id, timeout_ms=6_000), again)
    broker.identity.register(broker.log.image.brokers[BrokerId(1)].epoch)
    broker.follow()
    assert not broker.log.image.brokers[BrokerId(1)].admitted
    assert await broker.init() == errors_pb2.STALE_BROKER_EPOCH
    assert not broker.replicas.inits


async def test_c19_clients_are_shown_the_image_once_the_controller_has_told_of_it() -> None:
    broker = Broker()
    broker.log.create_topic("orders", (1, 2))
    broker.follow()
    assert not broker.cache.brokers, "nobody has told this broker of the cluster (decision 44)"
    assert await broker.update() == errors_pb2.NONE
    assert (broker.cache.leader(ORDERS), broker.cache.controller_id) == (1, 2)
    assert broker.cache.metadata_offset == broker.log.image.offset
    broker.log.create_topic("more", (2, 3))
    broker.follow()
    assert "more" in broker.cache.topics, "it follows by itself from then on"


@pytest.mark.parametrize("level", [1, 2])
async def test_b4_below_the_level_clients_are_shown_what_was_sent(level: int) -> None:
    broker = Broker(level)
    request = control_pb2.UpdateMetadataRequest(header=broker.header(broker.log.image), full=True)
    assert (await broker.service.UpdateMetadata(request, NO_CONTEXT)).error_code == 0
    broker.log.create_topic("orders", (1, 2))
    broker.follow()
    assert not broker.cache.topics


async def test_b4_what_was_sent_before_the_level_was_raised_does_not_come_back() -> None:
    broker = Broker()
    old = control_pb2.UpdateMetadataRequest(header=broker.header(broker.log.image), full=True)
    broker.log.create_topic("orders", (1, 2))
    broker.follow()
    assert await broker.update() == errors_pb2.NONE
    assert (await broker.service.UpdateMetadata(old, NO_CONTEXT)).error_code == errors_pb2.NONE
    assert "orders" in broker.cache.topics
