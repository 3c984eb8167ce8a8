"""The lanes to one broker."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from broker.controller.control_channel import BrokerChannel
from broker.controller.control_requests import ControlRequests, StoppedReplica
from broker.controller.lane import Correspondence
from broker.controller.managers.office import Office
from broker.controller.transport import ControlKind, ControlResponse, Unanswered
from broker.peers import Peer
from metadata_log.records import FeatureLevel
from metadata_log.types import BrokerId, ControllerEpoch, Endpoint, TopicIdPartition
from quorate_proto.v1 import control_pb2, errors_pb2
from tests.support.metadata import MetadataLogBuilder, topic_id_of
from tests.support.virtual_time import until

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
        self.answers: list[ControlResponse | Unanswered] = []
        self.gates: dict[ControlKind, asyncio.Event] = {}
        self.deposed: list[int] = []
        self.shared = Correspondence(
            controller_epoch=ControllerEpoch(1),
            requests=ControlRequests(Office(BrokerId(1), ControllerEpoch(1)), 1_000),
            transport=self,
            image=lambda: self.log.image,
            timeout_ms=1_000,
            on_deposed=self.deposed.append,
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
        if isinstance(answer, Unanswered):
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
    line.channel.leadership.tell([line.tip(0)])
    await until(lambda: len(line.sent) == 1)
    line.channel.leadership.tell([line.tip(1)])
    line.log.create_topic("later", (1,))
    line.channel.leadership.tell([line.tip(2), line.tip(1)])
    await asyncio.sleep(1)
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
    line.channel.leadership.tell_all()
    await until(lambda: line.sent)
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
    line.channel.metadata.tell(frozenset({"orders"}))
    await until(line.told)
    line.log.write_as_controller(FeatureLevel(name="inter_broker_protocol", level=2))
    line.channel.metadata.tell(frozenset({"orders"}))
    line.channel.leadership.tell([line.tip(0)])
    gate.set()
    await line.channel.drained()
    (told, told_later), (led,) = line.told(), line.led()
    own = line.log.image.brokers[BrokerId(2)].epoch
    assert (told.header.version, told.header.broker_epoch) == (6, own)
    assert (told_later.header.version, told_later.header.broker_epoch) == (7, -1)
    assert (led.header.version, led.header.broker_epoch) == (5, -1)
    assert led.header.max_broker_epoch == line.log.image.max_broker_epoch


async def test_c18_an_unanswered_request_is_an_alert_until_it_is_answered(line: Line) -> None:
    line.answers = [Unanswered("DEADLINE_EXCEEDED")] * 3
    line.channel.leadership.tell([line.tip(0)])
    await until(lambda: line.shared.alerts)
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
    line.channel.leadership.tell([line.tip(1)])
    await line.channel.drained()
    (text,) = line.shared.alerts.values()
    assert "orders-1" in text
    assert "KAFKA_STORAGE_ERROR" in text
    assert len(line.led()) == 1, "sending it again would not mend the disk"


async def test_e3_an_answer_with_a_higher_epoch_deposes(line: Line) -> None:
    line.answers = [
        control_pb2.LeaderAndIsrResponse(
            error_code=errors_pb2.STALE_CONTROLLER_EPOCH, controller_epoch=4
        )
    ]
    line.channel.leadership.tell([line.tip(0)])
    await until(lambda: line.deposed)
    assert line.deposed == [4]


async def test_c17_a_stop_waits_for_leadership_of_the_same_partition(line: Line) -> None:
    line.gates[ControlKind.LEADER_AND_ISR] = gate = asyncio.Event()
    line.channel.leadership.tell([line.tip(0)])
    await until(lambda: len(line.sent) == 1)
    line.channel.leadership.tell([line.tip(1)])
    line.channel.stops.tell([StoppedReplica("orders", line.tip(0))])
    await asyncio.sleep(1)
    assert [kind for kind, _ in line.sent] == [ControlKind.LEADER_AND_ISR]
    gate.set()
    await line.channel.stops.drained()
    assert line.sent[-1][0] is ControlKind.STOP_REPLICA or line.sent[-2][0] is (
        ControlKind.STOP_REPLICA
    )


async def test_c17_a_stop_voids_leadership_not_yet_told(line: Line) -> None:
    line.gates[ControlKind.LEADER_AND_ISR] = gate = asyncio.Event()
    line.channel.leadership.tell([line.tip(0)])
    await until(lambda: len(line.sent) == 1)
    line.channel.leadership.tell([line.tip(1), line.tip(2)])
    line.channel.stops.tell([StoppedReplica("orders", line.tip(1))])
    gate.set()
    await line.channel.drained()
    assert [one.partition for one in line.led()[-1].topics[0].partitions] == [2]


async def test_b1_a_change_that_may_be_missed_is_told_again(line: Line) -> None:
    line.channel.metadata.tell_all()
    await line.channel.drained()
    line.answers = [Unanswered("UNAVAILABLE")]
    line.log.create_topic("more", (1,))
    line.channel.metadata.tell(frozenset({"more"}))
    await until(lambda: len(line.told()) == 2)
    line.log.create_topic("later", (1,))
    line.channel.metadata.tell(frozenset({"later"}))
    await line.channel.drained()
    assert [request.full for request in line.told()] == [True, False, False]
    assert {topic.topic for topic in line.told()[-1].topics} == {"more", "later"}


async def test_b1_everything_is_told_again_where_that_may_be_missed(line: Line) -> None:
    line.answers = [Unanswered("UNAVAILABLE")]
    line.channel.metadata.tell_all()
    await line.channel.drained()
    assert [request.full for request in line.told()] == [True, True]
    assert line.bodies[-1] is line.shared.requests.full_metadata(line.log.image).body


async def test_b1_what_changes_meanwhile_is_told_at_once_from_the_newest_image(line: Line) -> None:
    line.channel.metadata.tell_all()
    await line.channel.drained()
    line.gates[ControlKind.UPDATE_METADATA] = gate = asyncio.Event()
    line.channel.metadata.tell(frozenset({"orders"}))
    await until(lambda: len(line.told()) == 2)
    for number in range(100):
        line.log.create_topic(f"more-{number}", (1,))
        line.channel.metadata.tell(frozenset({f"more-{number}"}))
    line.channel.metadata.tell(frozenset())
    gate.set()
    await line.channel.drained()
    assert len(line.told()) == 3
    assert len(line.told()[-1].topics) == 100
    assert line.told()[-1].header.metadata_offset == line.log.image.offset


async def test_b1_a_change_of_brokers_alone_is_told(line: Line) -> None:
    line.channel.metadata.tell(frozenset())
    await line.channel.drained()
    (told,) = line.told()
    assert (told.full, len(told.topics)) == (False, 0)
    assert told.brokers


async def test_c17_closing_releases_who_waits(line: Line) -> None:
    line.gates[ControlKind.LEADER_AND_ISR] = asyncio.Event()
    line.channel.leadership.tell([line.tip(0)])
    waiting = asyncio.create_task(line.channel.drained())
    await asyncio.sleep(1)
    assert not waiting.done()
    line.channel.close()
    await waiting
