"""A broker's reports about links: whom it names, when they are sent, and again, and no longer."""

import asyncio
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, cast

from quorate.broker.control.controller_client import ControllerClient
from quorate.broker.control.link_reporter import (
    REPEAT_INTERVAL_MS,
    TIMEOUT_MS,
    LinkReporter,
    LiveSince,
)
from quorate.common.types import BrokerEpoch, BrokerId
from quorate_proto.v1 import control_pb2, errors_pb2
from tests.support.identities import active, registered
from tests.support.virtual_time import VirtualTimeLoop, pass_time

LIMIT_MS = 5_000
TWO, THREE = BrokerId(2), BrokerId(3)


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"virtual-time": VirtualTimeLoop}


class Controller:
    """Of this very process; notes what it was told."""

    def __init__(self) -> None:
        self.code: int = errors_pb2.NONE
        self.delay_s = 0.0
        self.told: list[tuple[int, list[int]]] = []

    async def report_links(
        self, request: control_pb2.ReportLinksRequest
    ) -> control_pb2.ReportLinksResponse:
        await pass_time(self.delay_s)
        names = [peer.broker_id for peer in request.silent]
        self.told.append((request.controller_epoch, names))
        return control_pb2.ReportLinksResponse(error_code=self.code)


class Broker:
    """Broker 1 and its reporter. Brokers 2 and 3 are registered since long ago."""

    def __init__(self) -> None:
        self.controller = Controller()
        self.silent: dict[BrokerId, int] = {}
        self.image = SimpleNamespace(
            brokers={b: SimpleNamespace(epoch=BrokerEpoch(b)) for b in (TWO, THREE)},
            controller_id=BrokerId(-1),
            controller_epoch=4,
        )
        images = cast("Any", SimpleNamespace(image=self.image))
        identity = registered(1, 7)
        self.reporter = LinkReporter(
            identity,
            images=images,
            controller=ControllerClient(
                identity, images=images, channels=cast("Any", None), local=active(self.controller)
            ),
            links=self,
            clock=cast("Any", self),
        )

    def now_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000)

    def silent_peers(self) -> Mapping[BrokerId, int]:
        return self.silent

    def silence_max_ms(self) -> int:
        return LIMIT_MS

    async def begin(self) -> None:
        self.reporter.start()
        await pass_time(2 * LIMIT_MS / 1000)

    def loses(self, *peers: BrokerId) -> None:
        """They were heard last long ago."""
        self.silent = {peer: self.now_ms() - LIMIT_MS - 1_000 for peer in peers}


async def test_a_broker_that_hears_all_says_nothing() -> None:
    broker = Broker()
    await broker.begin()
    assert broker.controller.told == []
    await broker.reporter.close()


async def test_silent_brokers_are_reported_soon_again_and_their_return_once() -> None:
    broker = Broker()
    await broker.begin()
    broker.loses(TWO, THREE)
    await pass_time(0.3)
    assert broker.controller.told == [(4, [2, 3])]
    await pass_time(3 * REPEAT_INTERVAL_MS / 1000)
    assert 3 <= len(broker.controller.told) <= 4
    broker.loses(TWO)
    await pass_time(0.3)
    assert broker.controller.told[-1] == (4, [2])
    broker.loses()
    await pass_time(60)
    assert [names for _, names in broker.controller.told].count([]) == 1
    await broker.reporter.close()


async def test_a_new_controller_is_told_at_once_even_while_the_old_one_does_not_answer() -> None:
    broker = Broker()
    await broker.begin()
    broker.controller.delay_s = 1_000
    broker.loses(TWO)
    await pass_time(0.5)
    broker.controller.delay_s = 0
    broker.image.controller_epoch = 5
    await pass_time(0.5)
    assert broker.controller.told[0] == (5, [2])
    assert TIMEOUT_MS > 1_000, "else this would show nothing"
    await broker.reporter.close()


async def test_a_report_that_was_not_taken_is_repeated_at_once() -> None:
    broker = Broker()
    await broker.begin()
    broker.controller.code = errors_pb2.NOT_CONTROLLER
    broker.loses(TWO)
    await pass_time(1.1)
    assert len(broker.controller.told) >= 3
    await broker.reporter.close()


def test_a_new_incarnation_has_the_whole_time_to_be_heard() -> None:
    live = LiveSince()
    live.observe({TWO: BrokerEpoch(1)}, 0)
    live.observe({TWO: BrokerEpoch(2), THREE: BrokerEpoch(3)}, 10_000)
    silent = {TWO: 0, THREE: 0, BrokerId(4): 0}
    assert live.silent(silent, 10_000 + LIMIT_MS, LIMIT_MS) == []
    live.observe({TWO: BrokerEpoch(2)}, 11_000)
    (peer,) = live.silent(silent, 10_001 + LIMIT_MS, LIMIT_MS)
    assert (peer.broker_id, peer.broker_epoch, peer.broken_ms) == (2, 2, 1)
