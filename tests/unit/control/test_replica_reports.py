"""A broker's reports about its replicas: when they are sent, and again, and no longer."""

import asyncio
from collections.abc import Callable, Mapping
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

from broker.control.controller_duty import ControllerDuty
from broker.control.replica_reports import (
    REPEAT_INTERVAL_MS,
    RETRY_INTERVAL_MS,
    ReplicaReporter,
    Trouble,
)
from metadata_log.types import BrokerEpoch, BrokerId, TopicId, TopicIdPartition
from quorate_proto.v1 import control_pb2, errors_pb2
from tests.support.virtual_time import VirtualTimeLoop

TIP = TopicIdPartition(TopicId(b"t" * 16), 3)
NOTHING = Trouble(is_full=False, damaged=())
FULL = Trouble(is_full=True, damaged=())


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
        self.controller: Controller | None = Controller()
        self.epoch: BrokerEpoch | None = BrokerEpoch(7)
        self.trouble = NOTHING
        image = SimpleNamespace(brokers={}, controller_id=BrokerId(-1), controller_epoch=4)
        images = cast("Any", SimpleNamespace(image=image))
        self.reporter = ReplicaReporter(
            BrokerId(1),
            broker_epoch=lambda: self.epoch,
            images=images,
            duty=ControllerDuty(
                BrokerId(1),
                images=images,
                channels=cast("Any", None),
                local=lambda: cast("Any", self.controller),
            ),
            trouble=lambda: self.trouble,
        )
        self.reporter.start()

    async def meets(self, trouble: Trouble) -> None:
        self.trouble = trouble
        self.reporter.look()
        await asyncio.sleep(0.01)


async def test_a_broker_without_trouble_says_nothing() -> None:
    broker = Broker()
    await asyncio.sleep(60)
    assert broker.controller is not None
    assert broker.controller.told == []
    await broker.reporter.close()


async def test_trouble_is_reported_at_once_again_and_its_end_once() -> None:
    broker = Broker()
    await broker.meets(FULL)
    await asyncio.sleep(2.5 * REPEAT_INTERVAL_MS / 1000)
    await broker.meets(NOTHING)
    await asyncio.sleep(60)
    assert broker.controller is not None
    told = [request.is_full for _, request in broker.controller.told]
    assert told == [True, True, True, False]
    assert broker.controller.pauses_ms()[:2] == [REPEAT_INTERVAL_MS] * 2
    request = broker.controller.told[0][1]
    assert (request.broker_id, request.broker_epoch, request.controller_epoch) == (1, 7, 4)
    await broker.reporter.close()


async def test_damaged_logs_are_named() -> None:
    broker = Broker()
    await broker.meets(Trouble(is_full=False, damaged=[TIP]))
    assert broker.controller is not None
    ((_, request),) = broker.controller.told
    assert [(one.topic_id, one.partition) for one in request.damaged] == [tuple(TIP)]
    await broker.reporter.close()


async def test_a_report_that_was_not_taken_is_soon_repeated() -> None:
    broker = Broker()
    assert broker.controller is not None
    broker.controller.code = errors_pb2.NOT_CONTROLLER
    await broker.meets(FULL)
    await asyncio.sleep(3.5 * RETRY_INTERVAL_MS / 1000)
    assert broker.controller.pauses_ms() == [RETRY_INTERVAL_MS] * 3
    await broker.reporter.close()


async def test_a_broker_reports_once_it_is_registered_and_there_is_a_controller() -> None:
    broker = Broker()
    controller, broker.controller = broker.controller, None
    assert controller is not None
    await broker.meets(FULL)
    await asyncio.sleep(1)
    broker.controller, broker.epoch = controller, None
    await asyncio.sleep(1)
    assert controller.told == []
    broker.epoch = BrokerEpoch(8)
    await asyncio.sleep(1)
    assert [request.broker_epoch for _, request in controller.told] == [8]
    await broker.reporter.close()
