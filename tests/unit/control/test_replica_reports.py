"""A broker's reports about its replicas: when they are sent, and again, and no longer."""

import asyncio
from collections.abc import Callable, Mapping
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

from quorate.broker.control.controller_client import ControllerClient
from quorate.broker.control.replica_reporter import (
    REPEAT_INTERVAL_MS,
    RETRY_INTERVAL_MS,
    ReplicaReporter,
    ReplicaTroubles,
)
from quorate.common.types import BrokerEpoch, BrokerId, TopicId, TopicIdPartition
from quorate_proto.v1 import control_pb2, errors_pb2
from tests.support.identities import active, registered
from tests.support.virtual_time import VirtualTimeLoop, pass_time

TIP = TopicIdPartition(TopicId(b"t" * 16), 3)
NOTHING = ReplicaTroubles(is_full=False, damaged=())
FULL = ReplicaTroubles(is_full=True, damaged=())


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"virtual-time": VirtualTimeLoop}


class Controller:
    """Of this very process; notes when it was told what."""

    def __init__(self) -> None:
        self.code: int = errors_pb2.NONE
        self.told: list[tuple[int, control_pb2.ReportReplicasRequest]] = []

    async def report_replicas(
        self, request: control_pb2.ReportReplicasRequest
    ) -> control_pb2.ReportReplicasResponse:
        self.told.append((round(asyncio.get_running_loop().time() * 1000), request))
        return control_pb2.ReportReplicasResponse(error_code=self.code)

    def pauses_ms(self) -> list[int]:
        times = [at_ms for at_ms, _ in self.told]
        return [later - earlier for earlier, later in pairwise(times)]


class Broker:
    """Broker 1 and its reporter."""

    def __init__(self) -> None:
        self.controller = Controller()
        self.slot = active(self.controller)
        self.identity = registered(1, 7)
        self.trouble = NOTHING
        self.changed = asyncio.Event()
        image = SimpleNamespace(brokers={}, controller_id=BrokerId(-1), controller_epoch=4)
        images = cast("Any", SimpleNamespace(image=image))
        self.reporter = ReplicaReporter(
            self.identity,
            images=images,
            controller=ControllerClient(
                self.identity,
                images=images,
                channels=cast("Any", None),
                local=self.slot,
            ),
            troubles=self,
        )
        self.reporter.start()

    def current(self) -> ReplicaTroubles:
        return self.trouble

    async def meets(self, trouble: ReplicaTroubles) -> None:
        self.trouble = trouble
        self.changed.set()
        await pass_time(0.01)


async def test_a_broker_without_trouble_says_nothing() -> None:
    broker = Broker()
    await pass_time(60)
    assert broker.controller.told == []
    await broker.reporter.close()


async def test_trouble_is_reported_at_once_again_and_its_end_once() -> None:
    broker = Broker()
    await broker.meets(FULL)
    await pass_time(2.5 * REPEAT_INTERVAL_MS / 1000)
    await broker.meets(NOTHING)
    await pass_time(60)
    told = [request.is_full for _, request in broker.controller.told]
    assert told == [True, True, True, False]
    assert broker.controller.pauses_ms()[:2] == [REPEAT_INTERVAL_MS] * 2
    request = broker.controller.told[0][1]
    assert (request.broker_id, request.broker_epoch, request.controller_epoch) == (1, 7, 4)
    await broker.reporter.close()


async def test_damaged_logs_are_named() -> None:
    broker = Broker()
    await broker.meets(ReplicaTroubles(is_full=False, damaged=[TIP]))
    ((_, request),) = broker.controller.told
    assert [(one.topic_id, one.partition) for one in request.damaged] == [tuple(TIP)]
    await broker.reporter.close()


async def test_offline_replicas_are_named_with_their_directories() -> None:
    broker = Broker()
    await broker.meets(ReplicaTroubles(False, (), ["/disk-2"], [TIP]))
    ((_, request),) = broker.controller.told
    assert list(request.offline_directories) == ["/disk-2"]
    assert [(one.topic_id, one.partition) for one in request.offline] == [tuple(TIP)]
    assert not request.damaged
    await broker.reporter.close()


async def test_a_report_that_was_not_taken_is_soon_repeated() -> None:
    broker = Broker()
    broker.controller.code = errors_pb2.NOT_CONTROLLER
    await broker.meets(FULL)
    await pass_time(3.5 * RETRY_INTERVAL_MS / 1000)
    assert broker.controller.pauses_ms() == [RETRY_INTERVAL_MS] * 3
    await broker.reporter.close()


async def test_a_broker_reports_once_it_is_registered_and_there_is_a_controller() -> None:
    broker = Broker()
    controller = broker.controller
    broker.slot.empty()
    await broker.meets(FULL)
    await pass_time(1)
    broker.slot.fill(cast("Any", controller))
    broker.identity.unregister()
    await pass_time(1)
    assert controller.told == []
    broker.identity.register(BrokerEpoch(8))
    await pass_time(1)
    assert [request.broker_epoch for _, request in controller.told] == [8]
    await broker.reporter.close()
