"""The lanes to one broker."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from quorate.broker.controller.channels.broker_channel import BrokerChannel
from quorate.broker.controller.channels.control_request_queue import ChannelContext
from quorate.broker.controller.channels.control_requests import (
    ControlRequestBuilder,
    StoppedReplica,
)
from quorate.broker.controller.channels.control_transport import (
    ControlKind,
    ControlResponse,
    NoControlResponse,
)
from quorate.broker.controller.managers.decisions import ControllerTenure
from quorate.broker.controller.tenure import TenureGuard
from quorate.broker.rpc.peer_channels import Peer
from quorate.common.types import BrokerId, ControllerEpoch, Endpoint, TopicIdPartition
from quorate.metadata_log.records import FeatureLevel
from quorate_proto.v1 import control_pb2, errors_pb2
from tests.support.followers import ShownImage
from tests.support.metadata import MetadataLogBuilder, topic_id_of
from tests.support.virtual_time import pass_time
from tests.support.waiting import async_wait_until

REQUEST = {
    ControlKind.LEADER_AND_ISR: control_pb2.LeaderAndIsrRequest.FromString,
    ControlKind.STOP_REPLICA: control_pb2.StopReplicaRequest.FromString,
    ControlKind.UPDATE_METADATA: control_pb2.UpdateMetadataRequest.FromString,
}
RESPONSE: dict[ControlKind, Callable[..., ControlResponse]] = {
    ControlKind.LEADER_AND_ISR: control_pb2.LeaderAndIsrResponse,
    ControlKind.STOP_REPLICA: control_pb2.StopReplicaResponse,
    ControlKind.UPDATE_METADATA: control_pb2.UpdateMetadataResponse,
}

TENURE = ControllerTenure(BrokerId(1), ControllerEpoch(1))


class Line:
    """Controller, line and broker 2: answers as the test says, one answer per request."""

    def __init__(self) -> None:
        self.log = MetadataLogBuilder()
        for broker_id in (1, 2):
            self.log.start_broker(broker_id)
        self.log.elect_controller(1)
        self.log.create_topic("orders", (1, 2), (2, 1), (2, 1))
        self.sent: list[tuple[ControlKind, object]] = []
        self.bodies: list[bytes] = []
        self.answers: list[ControlResponse | NoControlResponse] = []
        self.gates: dict[ControlKind, asyncio.Event] = {}
        self.deposed: list[int] = []
        self.failed: list[tuple[int, list[TopicIdPartition]]] = []
        self.shared = ChannelContext(
            requests=ControlRequestBuilder(TENURE, 1_000),
            transport=self,
            images=ShownImage(lambda: self.log.image),
            guard=TenureGuard(TENURE, session_timeout_ms=60_000, on_end=self.deposed.append),
            timeout_ms=1_000,
            on_failed_elections=lambda broker, tips: self.failed.append(
                (broker.broker_id, list(tips))
            ),
        )
        self.channel = BrokerChannel(self.shared, self.log.image.brokers[BrokerId(2)])
        self.channel.start()

    async def send(
        self, peer: Peer, kind: ControlKind, body: bytes, timeout_ms: int
    ) -> ControlResponse:
        assert peer == Peer(BrokerId(2), Endpoint("grpc2", 9192))
        self.sent.append((kind, REQUEST[kind](body)))
        self.bodies.append(body)
        if kind in self.gates:
            await self.gates[kind].wait()
        answer = self.answers.pop(0) if self.answers else RESPONSE[kind]()
        if isinstance(answer, NoControlResponse):
            raise answer
        return answer

    def led(self) -> list[control_pb2.LeaderAndIsrRequest]:
        return [one for _, one in self.sent if isinstance(one, control_pb2.LeaderAndIsrRequest)]

    def told(self) -> list[control_pb2.UpdateMetadataRequest]:
        return [one for _, one in self.sent if isinstance(one, control_pb2.UpdateMetadataRequest)]

    def tip(self, number: int) -> TopicIdPartition:
        return TopicIdPartition(topic_id_of("orders"), number)


@pytest.fixture
async def line() -> AsyncIterator[Line]:
    line = Line()
    yield line
    line.channel.close()


async def test_c17_what_piles_up_goes_out_as_one_from_the_newest_image(line: Line) -> None:
    line.gates[ControlKind.LEADER_AND_ISR] = gate = asyncio.Event()
    line.channel.leadership.enqueue([line.tip(0)])
    await async_wait_until(lambda: len(line.sent) == 1, "one request")
    line.channel.leadership.enqueue([line.tip(1)])
    line.log.create_topic("later", (1,))
    line.channel.leadership.enqueue([line.tip(2), line.tip(1)])
    await pass_time(1)
    assert len(line.sent) == 1, "one request at a time"
    gate.set()
    await line.channel.drained()
    first, second = line.led()
    assert [one.partition for one in first.topics[0].partitions] == [0]
    assert [one.partition for one in second.topics[0].partitions] == [1, 2]
    assert second.header.metadata_offset == line.log.image.offset > first.header.metadata_offset


async def test_b2_a_request_is_built_again_and_never_restamped(line: Line) -> None:
    """The broker does not know its epoch yet; meanwhile another one registers."""
    stale = control_pb2.LeaderAndIsrResponse(
        error_code=errors_pb2.STALE_BROKER_EPOCH, controller_epoch=1
    )
    line.answers = [stale]
    line.channel.leadership.enqueue_all()
    await async_wait_until(lambda: line.sent, "a request")
    line.log.start_broker(3)
    await line.channel.drained()
    first, second = line.led()
    assert first.is_init
    assert second.is_init, "it is still the first word of this controller"
    assert second.header.max_broker_epoch == line.log.image.max_broker_epoch
    assert second.header.max_broker_epoch > first.header.max_broker_epoch
    assert len(second.topics[0].partitions) == 3
    assert not line.shared.alerts, "nobody needs to hear of that"


async def test_b4_the_form_changes_with_the_level_and_what_is_under_way_keeps_its_own(
    line: Line,
) -> None:
    line.log.write_as_controller(FeatureLevel(name="inter_broker_protocol", level=1))
    line.gates[ControlKind.UPDATE_METADATA] = gate = asyncio.Event()
    line.channel.metadata.enqueue(frozenset({"orders"}))
    await async_wait_until(line.told, "word to the broker")
    line.log.write_as_controller(FeatureLevel(name="inter_broker_protocol", level=2))
    line.channel.metadata.enqueue(frozenset({"orders"}))
    line.channel.leadership.enqueue([line.tip(0)])
    gate.set()
    await line.channel.drained()
    (told, told_later), (led,) = line.told(), line.led()
    own = line.log.image.brokers[BrokerId(2)].epoch
    assert (told.header.version, told.header.broker_epoch) == (6, own)
    assert (told_later.header.version, told_later.header.broker_epoch) == (7, -1)
    assert (led.header.version, led.header.broker_epoch) == (5, -1)
    assert led.header.max_broker_epoch == line.log.image.max_broker_epoch


async def test_c18_an_unanswered_request_is_an_alert_until_it_is_answered(line: Line) -> None:
    line.answers = [NoControlResponse("DEADLINE_EXCEEDED")] * 3
    line.channel.leadership.enqueue([line.tip(0)])
    await async_wait_until(lambda: line.shared.alerts, "an alert")
    (text,) = line.shared.alerts.values()
    assert text == "LeaderAndIsr to broker 2 got no answer: DEADLINE_EXCEEDED"
    await line.channel.drained()
    assert len(line.led()) == 4
    assert not line.shared.alerts


async def test_c18_a_failed_disk_is_an_alert(line: Line) -> None:
    outcome = control_pb2.PartitionOutcome(
        topic="orders", partition=1, error_code=errors_pb2.KAFKA_STORAGE_ERROR
    )
    line.answers = [control_pb2.LeaderAndIsrResponse(partitions=[outcome])]
    line.channel.leadership.enqueue([line.tip(1)])
    await line.channel.drained()
    (text,) = line.shared.alerts.values()
    assert "orders-1" in text
    assert "KAFKA_STORAGE_ERROR" in text
    assert len(line.led()) == 1, "sending it again would not mend the disk"


async def test_c21_a_partition_that_failed_stays_an_alert_until_it_is_taken_up(line: Line) -> None:
    """Another partition's success says nothing about it."""
    failed, fine = (
        control_pb2.LeaderAndIsrResponse(
            partitions=[
                control_pb2.PartitionOutcome(topic="orders", partition=1, error_code=error_code)
            ]
        )
        for error_code in (errors_pb2.KAFKA_STORAGE_ERROR, errors_pb2.NONE)
    )
    line.answers = [failed]
    line.channel.leadership.enqueue([line.tip(1)])
    await line.channel.drained()
    line.channel.leadership.enqueue([line.tip(0)])
    await line.channel.drained()
    (text,) = line.shared.alerts.values()
    assert "orders-1" in text
    line.answers = [fine]
    line.channel.leadership.enqueue([line.tip(1)])
    await line.channel.drained()
    assert not line.shared.alerts


async def test_c21_an_election_whose_leader_cannot_lead_has_failed(line: Line) -> None:
    outcomes = [
        control_pb2.PartitionOutcome(
            topic="orders", partition=number, error_code=errors_pb2.KAFKA_STORAGE_ERROR
        )
        for number in (0, 1)
    ]
    line.answers = [control_pb2.LeaderAndIsrResponse(partitions=outcomes)]
    line.channel.leadership.enqueue([line.tip(0), line.tip(1)])
    await line.channel.drained()
    assert line.failed == [(2, [line.tip(1)])], "broker 2 follows in partition 0"


async def test_e3_an_answer_with_a_higher_epoch_deposes(line: Line) -> None:
    line.answers = [
        control_pb2.LeaderAndIsrResponse(
            error_code=errors_pb2.STALE_CONTROLLER_EPOCH, controller_epoch=4
        )
    ]
    line.channel.leadership.enqueue([line.tip(0)])
    await async_wait_until(lambda: line.deposed, "the end of its office")
    assert line.deposed == [1], "the epoch that is over"


async def test_c17_a_stop_waits_for_leadership_of_the_same_partition(line: Line) -> None:
    line.gates[ControlKind.LEADER_AND_ISR] = gate = asyncio.Event()
    line.channel.leadership.enqueue([line.tip(0)])
    await async_wait_until(lambda: len(line.sent) == 1, "one request")
    line.channel.leadership.enqueue([line.tip(1)])
    line.channel.stops.enqueue([StoppedReplica("orders", line.tip(0))])
    await pass_time(1)
    assert [kind for kind, _ in line.sent] == [ControlKind.LEADER_AND_ISR]
    gate.set()
    await line.channel.stops.drained()
    assert line.sent[-1][0] is ControlKind.STOP_REPLICA or line.sent[-2][0] is (
        ControlKind.STOP_REPLICA
    )


async def test_c17_a_stop_voids_leadership_not_yet_told(line: Line) -> None:
    line.gates[ControlKind.LEADER_AND_ISR] = gate = asyncio.Event()
    line.channel.leadership.enqueue([line.tip(0)])
    await async_wait_until(lambda: len(line.sent) == 1, "one request")
    line.channel.leadership.enqueue([line.tip(1), line.tip(2)])
    line.channel.stops.enqueue([StoppedReplica("orders", line.tip(1))])
    gate.set()
    await line.channel.drained()
    assert [one.partition for one in line.led()[-1].topics[0].partitions] == [2]


async def test_b1_a_change_that_may_be_missed_is_told_again(line: Line) -> None:
    line.channel.metadata.enqueue_all()
    await line.channel.drained()
    line.answers = [NoControlResponse("UNAVAILABLE")]
    line.log.create_topic("more", (1,))
    line.channel.metadata.enqueue(frozenset({"more"}))
    await async_wait_until(lambda: len(line.told()) == 2, "two words to the broker")
    line.log.create_topic("later", (1,))
    line.channel.metadata.enqueue(frozenset({"later"}))
    await line.channel.drained()
    assert [request.full for request in line.told()] == [True, False, False]
    assert {topic.topic for topic in line.told()[-1].topics} == {"more", "later"}


async def test_b1_everything_is_told_again_where_that_may_be_missed(line: Line) -> None:
    line.answers = [NoControlResponse("UNAVAILABLE")]
    line.channel.metadata.enqueue_all()
    await line.channel.drained()
    assert [request.full for request in line.told()] == [True, True]
    assert line.bodies[-1] is line.shared.requests.full_metadata(line.log.image).body


async def test_b1_what_changes_meanwhile_is_told_at_once_from_the_newest_image(line: Line) -> None:
    line.channel.metadata.enqueue_all()
    await line.channel.drained()
    line.gates[ControlKind.UPDATE_METADATA] = gate = asyncio.Event()
    line.channel.metadata.enqueue(frozenset({"orders"}))
    await async_wait_until(lambda: len(line.told()) == 2, "two words to the broker")
    for number in range(100):
        line.log.create_topic(f"more-{number}", (1,))
        line.channel.metadata.enqueue(frozenset({f"more-{number}"}))
    line.channel.metadata.enqueue(frozenset())
    gate.set()
    await line.channel.drained()
    assert len(line.told()) == 3
    assert len(line.told()[-1].topics) == 100
    assert line.told()[-1].header.metadata_offset == line.log.image.offset


async def test_b1_a_change_of_brokers_alone_is_told(line: Line) -> None:
    line.channel.metadata.enqueue(frozenset())
    await line.channel.drained()
    (told,) = line.told()
    assert (told.full, len(told.topics)) == (False, 0)
    assert told.brokers


async def test_c17_closing_releases_who_waits(line: Line) -> None:
    line.gates[ControlKind.LEADER_AND_ISR] = asyncio.Event()
    line.channel.leadership.enqueue([line.tip(0)])
    waiting = asyncio.create_task(line.channel.drained())
    await pass_time(1)
    assert not waiting.done()
    line.channel.close()
    await waiting
