"""The brokers in the rack of a consumer, and the replica it is sent to (KIP-392)."""

from pathlib import Path

import pytest

from quorate.broker.kafka.api_table import api_table
from quorate.broker.kafka.connection.request_dispatcher import RequestDispatcher
from quorate.broker.kafka.connection.requests import ClientSession, RequestContext
from quorate.broker.kafka.records.fetch_api import RackBrokers
from quorate.common.types import DEFAULT_LISTENER, BrokerId, Endpoint
from tests.support.kafka_fakes import FakeBroker, FakeBrokerInside, fake_broker
from tests.support.kafka_wire import fetching, read_answer, request_frame
from tests.unit.kafka.conftest import Ask

FETCH = 1
SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
AT = Endpoint("127.0.0.1", 1)


@pytest.fixture
def racks(tmp_path: Path) -> FakeBrokerInside:
    """Brokers 1 and 2 in rack a, 3 in rack b; only 1 has the listener EXTERNAL."""
    inside = fake_broker(tmp_path, replica_selector_class=SELECTOR)
    brokers = inside.metadata.brokers
    brokers[BrokerId(1)] = FakeBroker(AT, AT, "a").at("EXTERNAL", AT)
    brokers[BrokerId(2)] = FakeBroker(AT, AT, "a")
    brokers[BrokerId(3)] = FakeBroker(AT, AT, "b")
    inside.metadata.changed()
    return inside


@pytest.mark.parametrize(
    ("rack", "listener", "near"),
    [
        ("a", DEFAULT_LISTENER, {1, 2}),
        ("a", "EXTERNAL", {1}),
        ("b", DEFAULT_LISTENER, {3}),
        ("b", "EXTERNAL", set()),
        ("elsewhere", DEFAULT_LISTENER, set()),
        ("", DEFAULT_LISTENER, None),
    ],
)
def test_near_is_who_is_in_the_rack_and_can_be_reached(
    racks: FakeBrokerInside, rack: str, listener: str, near: set[int] | None
) -> None:
    context = RequestContext(11, "c", "h", listener=listener)
    assert RackBrokers().of(racks.services, context, rack) == near


def test_brokers_that_come_and_go_are_noticed(racks: FakeBrokerInside) -> None:
    context, rack_brokers = RequestContext(11, "c", "h"), RackBrokers()
    assert rack_brokers.of(racks.services, context, "b") == frozenset({BrokerId(3)})
    racks.metadata.brokers[BrokerId(4)] = FakeBroker(AT, AT, "b")
    racks.metadata.changed()
    assert rack_brokers.of(racks.services, context, "b") == frozenset({BrokerId(3), BrokerId(4)})


async def test_without_the_selector_nobody_is_sent_anywhere(
    inside: FakeBrokerInside, ask: Ask
) -> None:
    """A consumer that another broker has sent to this one is still served."""
    inside.metadata.add_topic("t")
    await ask(FETCH, 12, fetching(rack="r1"))
    await ask(FETCH, 12, fetching(rack=""))
    await ask(FETCH, 10, fetching(rack="r1") | {"rack_id": ""})
    assert inside.replicas.near == [frozenset(), None, None]


@pytest.mark.parametrize("session", [(0, -1), (0, 0)])
async def test_a_consumer_is_told_where_to_read(
    racks: FakeBrokerInside, session: tuple[int, int]
) -> None:
    racks.metadata.add_topic("t")
    racks.replicas.preferred_read_replica = 2
    dispatcher = RequestDispatcher(racks.services, api_table())
    for number in range(2):
        frame = request_frame(FETCH, 11, fetching(rack="a", session=session))
        request = dispatcher.decode(memoryview(bytearray(frame)), ClientSession("h"))
        _, response = read_answer(FETCH, 11, b"\0\0\0\0" + b"".join(await request.run()))
        (partition,) = response.responses[0].partitions
        assert (partition.preferred_read_replica, partition.records) == (2, b"")
        session = (response.session_id, number + 1) if response.session_id else session
    assert racks.replicas.near == [{1, 2}, {1, 2}]
