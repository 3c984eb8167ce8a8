"""Requests about everything take turns, so that memory does not grow with brokers (B1, C17)."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from quorate.broker.controller.channels.broker_channel import BrokerChannel
from quorate.broker.controller.channels.control_request_queue import (
    FULL_REQUESTS_AT_ONCE,
    ChannelContext,
)
from quorate.broker.controller.channels.control_requests import ControlRequestBuilder
from quorate.broker.controller.channels.control_transport import ControlKind, ControlResponse
from quorate.broker.controller.channels.request_slots import LONGEST_SLOT_S
from quorate.broker.controller.tenure import TenureGuard
from quorate.broker.rpc.peer_channels import Peer
from quorate.common.types import TopicIdPartition
from tests.support.followers import ShownImage
from tests.support.metadata import MetadataLogBuilder, topic_id_of
from tests.support.virtual_time import pass_time
from tests.unit.controller.test_broker_channel import RESPONSE, TENURE

BROKERS = 20
KINDS = tuple(FULL_REQUESTS_AT_ONCE)


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
        shared = ChannelContext(
            requests=ControlRequestBuilder(TENURE, 60_000),
            transport=self,
            images=ShownImage(lambda: log.image),
            guard=TenureGuard(TENURE, session_timeout_ms=60_000, on_end=print),
            timeout_ms=60_000,
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

    def enqueue_all(self) -> None:
        for channel in self.channels:
            channel.metadata.enqueue_all()
            channel.leadership.enqueue_all()

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
    brokers.enqueue_all()
    await pass_time(LONGEST_SLOT_S / 2)
    assert brokers.waiting == FULL_REQUESTS_AT_ONCE
    await brokers.drained()
    assert brokers.most == FULL_REQUESTS_AT_ONCE


async def test_c17_changes_wait_for_nobody(brokers: ManyBrokers) -> None:
    brokers.channels[0].leadership.enqueue_all()
    for number, channel in enumerate(brokers.channels):
        channel.leadership.enqueue([TopicIdPartition(topic_id_of("orders"), number)])
        channel.metadata.enqueue(frozenset({"orders"}))
    await pass_time(LONGEST_SLOT_S / 2)
    assert [brokers.waiting[kind] for kind in KINDS] == [BROKERS, BROKERS]


async def test_c17_brokers_that_do_not_answer_hold_up_the_others_for_a_moment(
    brokers: ManyBrokers,
) -> None:
    brokers.enqueue_all()
    await pass_time(LONGEST_SLOT_S * BROKERS / min(FULL_REQUESTS_AT_ONCE.values()))
    assert [brokers.waiting[kind] for kind in KINDS] == [BROKERS, BROKERS]
    await brokers.drained()
    brokers.answering.clear()
    brokers.enqueue_all()
    await pass_time(LONGEST_SLOT_S / 2)
    assert brokers.waiting == FULL_REQUESTS_AT_ONCE, "no turn has ended twice"


async def test_c17_a_broker_that_is_gone_gives_its_turn_back(brokers: ManyBrokers) -> None:
    brokers.enqueue_all()
    await pass_time(LONGEST_SLOT_S / 4)
    for channel in brokers.channels[: max(FULL_REQUESTS_AT_ONCE.values())]:
        channel.close()
    await pass_time(LONGEST_SLOT_S / 4)
    assert brokers.waiting == FULL_REQUESTS_AT_ONCE
