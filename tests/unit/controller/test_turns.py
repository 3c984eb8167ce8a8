"""Requests about everything take turns, so that memory does not grow with brokers (B1, C17)."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from broker.controller.control_channel import BrokerChannel
from broker.controller.control_requests import ControlRequests
from broker.controller.lane import ABOUT_EVERYTHING_AT_ONCE, Correspondence
from broker.controller.managers.office import Office
from broker.controller.transport import ControlKind, ControlResponse
from broker.controller.turns import LONGEST_TURN_S
from broker.peers import Peer
from metadata_log.types import BrokerId, ControllerEpoch, TopicIdPartition
from tests.support.metadata import MetadataLogBuilder, topic_id_of
from tests.unit.controller.test_control_channel import RESPONSE

BROKERS = 20
KINDS = tuple(ABOUT_EVERYTHING_AT_ONCE)


class ManyBrokers:
    """Channels to brokers that answer when they are told to; how many requests wait for that."""

    def __init__(self) -> None:
        log = MetadataLogBuilder()
        for broker_id in range(1, BROKERS + 1):
            log.start_broker(broker_id)
        log.elect_controller(1)
        log.create_topic("orders", *((broker_id,) for broker_id in range(1, BROKERS + 1)))
        self.waiting: Counter[ControlKind] = Counter()
        self.most: Counter[ControlKind] = Counter()
        self.answering = asyncio.Event()
        shared = Correspondence(
            controller_epoch=ControllerEpoch(1),
            requests=ControlRequests(Office(BrokerId(1), ControllerEpoch(1)), 60_000),
            transport=self,
            image=lambda: log.image,
            timeout_ms=60_000,
            on_deposed=lambda _: None,
        )
        self.channels = [BrokerChannel(shared, one) for one in log.image.brokers.values()]
        for channel in self.channels:
            channel.start()

    async def send(
        self, peer: Peer, kind: ControlKind, body: bytes, timeout_ms: int
    ) -> ControlResponse:
        self.waiting[kind] += 1
        self.most[kind] = max(self.most[kind], self.waiting[kind])
        try:
            await self.answering.wait()
        finally:
            self.waiting[kind] -= 1
        return RESPONSE[kind]()

    def tell_all(self) -> None:
        for channel in self.channels:
            channel.metadata.tell_all()
            channel.leadership.tell_all()

    async def drained(self) -> None:
        self.answering.set()
        await asyncio.gather(*(channel.drained() for channel in self.channels))


@pytest.fixture
async def brokers() -> AsyncIterator[ManyBrokers]:
    brokers = ManyBrokers()
    yield brokers
    for channel in brokers.channels:
        channel.close()


async def test_b1_few_are_told_everything_at_a_time(brokers: ManyBrokers) -> None:
    brokers.tell_all()
    await asyncio.sleep(LONGEST_TURN_S / 2)
    assert brokers.waiting == ABOUT_EVERYTHING_AT_ONCE
    await brokers.drained()
    assert brokers.most == ABOUT_EVERYTHING_AT_ONCE


async def test_c17_changes_wait_for_nobody(brokers: ManyBrokers) -> None:
    brokers.channels[0].leadership.tell_all()
    for number, channel in enumerate(brokers.channels):
        channel.leadership.tell([TopicIdPartition(topic_id_of("orders"), number)])
        channel.metadata.tell(frozenset({"orders"}))
    await asyncio.sleep(LONGEST_TURN_S / 2)
    assert [brokers.waiting[kind] for kind in KINDS] == [BROKERS, BROKERS]


async def test_c17_brokers_that_do_not_answer_hold_up_the_others_for_a_moment(
    brokers: ManyBrokers,
) -> None:
    brokers.tell_all()
    await asyncio.sleep(LONGEST_TURN_S * BROKERS / min(ABOUT_EVERYTHING_AT_ONCE.values()))
    assert [brokers.waiting[kind] for kind in KINDS] == [BROKERS, BROKERS]
    await brokers.drained()
    brokers.answering.clear()
    brokers.tell_all()
    await asyncio.sleep(LONGEST_TURN_S / 2)
    assert brokers.waiting == ABOUT_EVERYTHING_AT_ONCE, "no turn has ended twice"


async def test_c17_a_broker_that_is_gone_gives_its_turn_back(brokers: ManyBrokers) -> None:
    brokers.tell_all()
    await asyncio.sleep(LONGEST_TURN_S / 4)
    for channel in brokers.channels[: max(ABOUT_EVERYTHING_AT_ONCE.values())]:
        channel.close()
    await asyncio.sleep(LONGEST_TURN_S / 4)
    assert brokers.waiting == ABOUT_EVERYTHING_AT_ONCE
