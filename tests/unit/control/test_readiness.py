"""A broker says whether it serves, and why not."""

from collections.abc import AsyncIterator

import pytest

from quorate.broker.control.readiness import KEPT_MS, STARTING, STOPPING, Readiness
from quorate.common.types import BrokerId, ControllerEpoch
from quorate.metadata_log.records import (
    BrokerAdmitted,
    ControllerClaim,
    ControllerEpochIs,
    Operation,
    SessionClosed,
)
from tests.support.local_quorum import LocalQuorum
from tests.unit.control.test_registration import Process


class Broker:
    """Broker 1, which is also the controller that admits it."""

    def __init__(self) -> None:
        self.quorum = LocalQuorum()
        self.process = Process(self.quorum, 1)
        self.now_ms = 0
        self.readiness = Readiness(
            self.process.identity,
            self.process.client,
            self.process.follower,
            lambda: self.now_ms,
        )

    async def why(self) -> str:
        """Look again after the last result is no longer kept."""
        self.now_ms += KEPT_MS
        return await self.readiness.why_unready()

    def admit(self) -> None:
        epoch = self.process.identity.epoch
        assert epoch is not None
        claim = ControllerClaim(
            broker_id=BrokerId(1),
            session_id=self.process.client.session_id,
            timestamp_ms=1,
            controller_epoch=ControllerEpoch(1),
        )
        assert self.quorum.write(Operation(records=(claim,))).ok
        admitted = BrokerAdmitted(broker_id=BrokerId(1), broker_epoch=epoch)
        assert self.quorum.write(
            Operation(
                records=(admitted,),
                conditions=(ControllerEpochIs(controller_epoch=ControllerEpoch(1)),),
            )
        ).ok


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    broker = Broker()
    await broker.process.start()
    broker.admit()
    broker.readiness.begin("")
    yield broker
    broker.process.client.watch_may_go_on.set()
    await broker.process.stop()


async def test_a_broker_that_starts_or_stops_says_so() -> None:
    broker = Broker()
    assert await broker.why() == STARTING
    broker.readiness.begin("the broker opens its log")
    assert await broker.why() == "the broker opens its log"
    broker.readiness.begin(STOPPING)
    assert await broker.why() == STOPPING


async def test_it_is_ready_once_it_is_admitted(broker: Broker) -> None:
    assert await broker.why() == ""


async def test_it_is_not_ready_before_the_controller_admits_it() -> None:
    broker = Broker()
    await broker.process.start()
    broker.readiness.begin("")
    assert await broker.why() == "the controller has not admitted the broker yet"
    await broker.process.stop()


async def test_it_is_not_ready_without_a_session(broker: Broker) -> None:
    broker.quorum.available = False
    broker.quorum.expire(broker.process.client.session_id)
    assert "lost its session" in await broker.why()


async def test_it_is_not_ready_once_the_cluster_has_fenced_it_and_it_does_not_know(
    broker: Broker,
) -> None:
    epoch = broker.process.identity.epoch
    closed = SessionClosed(session_id=broker.process.client.session_id, reason="fenced")
    broker.quorum.write(Operation(records=(closed,)))
    assert await broker.why() == (
        f"the metadata has no registration of this broker with epoch {epoch}"
    )


async def test_it_is_not_ready_while_its_metadata_is_old(broker: Broker) -> None:
    assert await broker.why() == ""
    known = broker.process.follower.applied_offset
    broker.process.client.watch_may_go_on.clear()
    broker.quorum.open_session("somebody else", 1_000)
    assert await broker.why() == (f"its metadata is at offset {known}, the quorum's at {known + 1}")
    broker.process.client.watch_may_go_on.set()
    assert await broker.why() == ""


async def test_it_stays_ready_while_the_quorum_is_away(broker: Broker) -> None:
    broker.quorum.available = False
    assert await broker.why() == ""


async def test_many_probes_cost_the_quorum_one_read(broker: Broker) -> None:
    assert await broker.why() == ""
    broker.process.identity.unregister()
    assert await broker.readiness.why_unready() == "", "the last result is kept for a while"
    broker.now_ms += KEPT_MS
    assert await broker.readiness.why_unready() != ""
