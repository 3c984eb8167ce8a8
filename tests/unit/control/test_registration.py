"""A broker registers, waits its turn, and registers again."""

import asyncio
from collections.abc import Sequence

import pytest

from quorate.broker.common.broker_identity import BrokerIdentity
from quorate.broker.control.broker_registrar import BrokerRegistrar, RegistrationRefused
from quorate.broker.metadata.metadata_follower import MetadataFollower
from quorate.common.types import BrokerEpoch, BrokerId, ControllerEpoch, Endpoint, TopicId
from quorate.metadata_log.records import (
    BrokerAdmitted,
    ControllerClaim,
    ControllerEpochIs,
    Listener,
    LostReplica,
    Operation,
)
from quorate.metadata_log.rules.broker_history import LOST_REPLICAS_MAX
from tests.support.local_quorum import LocalQuorum, LocalQuorumClient
from tests.support.virtual_time import pass_time
from tests.support.waiting import async_wait_until


class Process:
    """One process of broker 1."""

    def __init__(
        self,
        quorum: LocalQuorum,
        incarnation: int,
        *,
        log_may_be_lost: bool = False,
        lost_replicas: Sequence[LostReplica] = (),
    ) -> None:
        self.client: LocalQuorumClient = quorum.client(f"incarnation {incarnation}")
        self.follower = MetadataFollower(self.client)
        self.identity = BrokerIdentity(BrokerId(1), f"incarnation {incarnation:4}".encode())
        self.registrar = BrokerRegistrar(
            self.client,
            identity=self.identity,
            listeners=[Listener(name="PLAINTEXT", endpoint=Endpoint("h", 9092))],
            grpc=Endpoint("h", 9192),
            images=self.follower,
            log_may_be_lost=log_may_be_lost,
            lost_replicas=lost_replicas,
        )

    def epoch(self) -> BrokerEpoch | None:
        return self.identity.epoch

    async def start(self) -> int:
        await self.client.start()
        await self.follower.start()
        await self.follower.wait_for(await self.client.read_offset())
        return await self.registrar.start()

    async def stop(self) -> None:
        await self.registrar.close()
        await self.follower.close()


async def test_b2_the_epoch_is_unknown_until_the_quorum_has_answered() -> None:
    process = Process(LocalQuorum(), 1)
    assert process.epoch() is None
    epoch = await process.start()
    assert process.epoch() == epoch
    assert epoch > 0
    await process.stop()


async def test_b3_scenario_10_a_new_incarnation_waits_and_gets_a_greater_epoch() -> None:
    """Scenario 10."""
    quorum = LocalQuorum()
    first, second = Process(quorum, 1), Process(quorum, 2)
    old = await first.start()
    starting = asyncio.create_task(second.start())
    await pass_time(3)
    assert not starting.done(), "the id is taken while the old session lives"
    quorum.expire(first.client.session_id, tell=False)
    assert await starting > old
    await first.stop()
    await second.stop()


async def test_b3_scenario_10_the_same_incarnation_keeps_its_epoch_while_it_is_registered() -> None:
    """Scenario 10: an answer was lost, and the registration sent again."""
    quorum = LocalQuorum()
    process = Process(quorum, 1)
    quorum.lose_answers(process.client, 1)
    epoch = await process.start()
    assert quorum.image.brokers[BrokerId(1)].epoch == epoch
    registrations = [offset for offset, _ in quorum.log if offset >= epoch]
    assert len(registrations) == 2, "it was applied twice, with one epoch"
    await process.stop()


async def test_b3_a_lost_session_makes_the_epoch_unknown_until_registered_anew() -> None:
    quorum = LocalQuorum()
    process = Process(quorum, 1)
    old = await process.start()
    quorum.available = False
    quorum.expire(process.client.session_id)
    assert process.epoch() is None
    await pass_time(5)
    assert process.epoch() is None
    quorum.available = True
    await async_wait_until(lambda: process.epoch() is not None, "a registration")
    assert (process.epoch() or 0) > old
    await process.stop()


async def test_b3_an_invalid_registration_is_an_error_that_says_why() -> None:
    quorum = LocalQuorum()
    process = Process(quorum, 1)
    process.identity.incarnation_id = b"short"
    with pytest.raises(RegistrationRefused, match="incarnation id"):
        await process.start()
    await process.stop()


async def test_d1_log_loss_is_declared_until_a_controller_has_dealt_with_it() -> None:
    """Rule 8."""
    quorum = LocalQuorum()
    process = Process(quorum, 1, log_may_be_lost=True)
    epoch = await process.start()
    assert quorum.image.brokers[BrokerId(1)].registration.log_may_be_lost
    quorum.expire(process.client.session_id)
    await async_wait_until(lambda: process.epoch() not in (None, epoch), "another registration")
    assert quorum.image.brokers[BrokerId(1)].registration.log_may_be_lost, "not dealt with yet"
    broker = quorum.image.brokers[BrokerId(1)]
    claim = ControllerClaim(
        broker_id=BrokerId(1),
        session_id=process.client.session_id,
        timestamp_ms=1,
        controller_epoch=ControllerEpoch(1),
    )
    assert quorum.write(Operation(records=(claim,))).ok
    admitted = BrokerAdmitted(broker_id=BrokerId(1), broker_epoch=broker.epoch)
    held = ControllerEpochIs(controller_epoch=ControllerEpoch(1))
    assert quorum.write(Operation(records=(admitted,), conditions=(held,))).ok
    await pass_time(1)
    quorum.expire(process.client.session_id)
    await async_wait_until(
        lambda: process.epoch() not in (None, broker.epoch), "another registration"
    )
    assert not quorum.image.brokers[BrokerId(1)].registration.log_may_be_lost
    await process.stop()


LOST = LostReplica(topic_id=TopicId(b"t" * 16), partition=3)


async def test_rule_8_single_lost_replicas_are_declared_with_every_registration() -> None:
    quorum = LocalQuorum()
    process = Process(quorum, 1, lost_replicas=[LOST])
    epoch = await process.start()
    broker = quorum.image.brokers[BrokerId(1)]
    assert (broker.lost, broker.registration.log_may_be_lost) == ((LOST,), False)
    quorum.expire(process.client.session_id)
    await async_wait_until(lambda: process.epoch() not in (None, epoch), "another registration")
    assert quorum.image.brokers[BrokerId(1)].lost == (LOST,), "nobody has dealt with it yet"
    await process.stop()


async def test_rule_8_too_many_lost_replicas_are_the_whole_log() -> None:
    quorum = LocalQuorum()
    process = Process(quorum, 1, lost_replicas=[LOST] * (LOST_REPLICAS_MAX + 1))
    await process.start()
    broker = quorum.image.brokers[BrokerId(1)]
    assert (broker.lost, broker.registration.log_may_be_lost) == ((), True)
    await process.stop()
