"""The simulated client says no more of a transaction's fate than the product's client would."""

import asyncio
from unittest.mock import Mock

import pytest

from quorate.common.types import BrokerId, Endpoint
from quorate.metadata_log.records import BrokerRegistration, Operation, TransactionResult
from quorate.quorum.quorum_errors import OutcomeUnknown, SessionLost
from tests.sim.cluster.quorum import SimulatedQuorum
from tests.sim.cluster.quorum_client import SimulatedQuorumClient
from tests.sim.world import World

TO_QUORUM, FROM_QUORUM = (1, True), (1, False)


class _ClientUnderTest:
    """A host's only client, with a session and one transaction on its way."""

    def __init__(self) -> None:
        self.world = World(1)
        self.quorum = SimulatedQuorum(self.world)
        host = Mock(voter_id=1, process=None)
        host.deliver = lambda _process, action: action()
        host.clock_s = lambda: self.world.now
        self.client = SimulatedQuorumClient(self.quorum, host, timeout_ms=3_000, patience=1.0)
        self.client.session_id = self.quorum.open_session(3_000, "broker 1")
        here = Endpoint(host="localhost", port=1)
        self._registration = BrokerRegistration(
            broker_id=BrokerId(1),
            session_id=self.client.session_id,
            incarnation_id=bytes(16),
            kafka=here,
            grpc=here,
        )
        self.lost: list[bool] = []
        self.client.on_session_lost(lambda: self.lost.append(True))

    async def send(self) -> "asyncio.Task[TransactionResult]":
        change = Operation(records=(self._registration,))
        under_way = asyncio.create_task(self.client.transact([change]))
        await asyncio.sleep(0)
        self.world.run_until(self.world.now + 0.1)
        return under_way

    def close_session(self) -> None:
        self.quorum.close_session(self.client.session_id)

    def send_again(self) -> None:
        (sequence,) = self.client._under_way
        self.client._send(sequence)
        self.world.run_until(self.world.now + 0.1)


@pytest.fixture
async def under_test() -> _ClientUnderTest:
    return _ClientUnderTest()


@pytest.mark.parametrize(
    ("lost_way", "is_applied"),
    [(FROM_QUORUM, True), (TO_QUORUM, False)],
    ids=["its answer was lost", "it was lost itself"],
)
async def test_c1_what_was_sent_again_in_a_session_that_is_gone_may_have_been_applied(
    under_test: _ClientUnderTest, lost_way: tuple[int, bool], is_applied: bool
) -> None:
    """The quorum forgot the first result with the session, and refuses what it has applied."""
    quorum = under_test.quorum
    quorum.cuts.add(lost_way)
    under_way = await under_test.send()
    assert bool(quorum.image.brokers) is is_applied
    under_test.close_session()
    quorum.cuts.clear()
    under_test.send_again()
    with pytest.raises(OutcomeUnknown):
        await under_way
    assert under_test.lost


async def test_what_was_sent_once_in_a_session_that_is_gone_was_not_applied(
    under_test: _ClientUnderTest,
) -> None:
    under_test.close_session()
    under_way = await under_test.send()
    with pytest.raises(SessionLost):
        await under_way
    assert under_test.lost


async def test_what_is_under_way_when_the_client_hears_that_its_session_is_gone_is_unknown(
    under_test: _ClientUnderTest,
) -> None:
    under_test.quorum.cuts.add(TO_QUORUM)
    under_way = await under_test.send()
    under_test.client._session_gone(under_test.client.session_id)
    with pytest.raises(OutcomeUnknown):
        await under_way
    with pytest.raises(SessionLost):
        await (await under_test.send())
