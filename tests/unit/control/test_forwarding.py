"""Admin requests find the controller, or time out."""

import asyncio
from collections.abc import Callable
from typing import Any

import grpc.aio
import pytest

from quorate.broker.changes.table import (
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    ELECT_LEADERS,
    INCREMENTAL_ALTER_CONFIGS,
    A,
    Change,
    Q,
)
from quorate.broker.common.errors import KafkaError
from quorate.broker.control.controller_forwarder import ControllerForwarder
from quorate.broker.metadata.metadata_follower import MetadataFollower
from quorate.broker.rpc.peer_channels import Peer, PeerChannels
from quorate.common.types import Endpoint
from quorate.metadata_log.image import Image
from quorate.metadata_log.records import FeatureLevel
from quorate_proto.v1 import admin_pb2, errors_pb2
from tests.support.identities import active, registered
from tests.support.metadata import MetadataLogBuilder

CREATE = admin_pb2.CreateTopicsRequest(
    context=admin_pb2.RequestContext(principal_name="User:ann", timeout_ms=5_000, forwarded_by=-1),
    topics=[admin_pb2.NewTopic(name="a"), admin_pb2.NewTopic(name="b")],
)


class FakeChannels(PeerChannels):
    """Channels whose every call is answered by one function."""

    def __init__(self, answer: Callable[[Endpoint, Any], Any]) -> None:
        super().__init__()
        self._answer = answer
        self.calls: list[tuple[Endpoint, Any]] = []

    def get(self, peer: Peer) -> grpc.aio.Channel:
        channels, endpoint = self, peer.endpoint

        class Channel:
            def unary_unary(self, *_: Any, **__: Any) -> Any:  # noqa: ANN401 - gRPC's own
                async def call(request: Any, timeout: float) -> Any:  # noqa: ANN401
                    channels.calls.append((endpoint, request))
                    return channels._answer(endpoint, request)

                return call

        return Channel()  # type: ignore[return-value]


class Here:
    """Broker 2, which is not the controller."""

    def __init__(self, answer: Callable[[Endpoint, Any], Any]) -> None:
        self.log = MetadataLogBuilder()
        for broker_id in (1, 2, 3):
            self.log.start_broker(broker_id)
        self.follower = MetadataFollower(None)  # type: ignore[arg-type]
        self.channels = FakeChannels(answer)
        self.bridged: list[str] = []
        self.identity = registered(2, 4)
        self.forwarder = ControllerForwarder(
            identity=self.identity,
            images=self.follower,
            channels=self.channels,
            local=active(),
            bridge=self,
        )
        self.look()

    async def perform(self, change: Change[Q, A], request: Q) -> A:
        """As this broker's bridge does."""
        self.bridged.append(change.rpc)
        return change.answer()

    def look(self) -> Image:
        self.follower.image = self.log.image
        return self.log.image


def accepted(_: Endpoint, request: admin_pb2.CreateTopicsRequest) -> admin_pb2.CreateTopicsResponse:
    return admin_pb2.CreateTopicsResponse(
        topics=[admin_pb2.TopicResult(name=topic.name) for topic in request.topics]
    )


async def test_f6_s17_without_a_controller_until_the_deadline_each_item_times_out() -> None:
    """Scenario 17."""
    here = Here(accepted)
    begin = asyncio.get_running_loop().time()
    response = await here.forwarder.forward(CREATE_TOPICS, CREATE)
    assert 5.0 <= asyncio.get_running_loop().time() - begin < 5.2
    assert [one.name for one in response.topics] == ["a", "b"]
    assert {one.error_code for one in response.topics} == {errors_pb2.REQUEST_TIMED_OUT}
    assert "5000 ms" in response.topics[0].error_message
    assert not here.channels.calls


async def test_f2_one_hop_that_says_so_and_keeps_the_principal() -> None:
    here = Here(accepted)
    here.log.elect_controller(3)
    here.look()
    response = await here.forwarder.forward(CREATE_TOPICS, CREATE)
    assert {one.error_code for one in response.topics} == {errors_pb2.NONE}
    ((endpoint, request),) = here.channels.calls
    assert endpoint == Endpoint("grpc3", 9192)
    assert request.context.forwarded_by == 2
    assert request.context.controller_epoch == here.log.image.controller_epoch > 0, "E3"
    assert request.context.principal_name == "User:ann"
    assert 0 < request.context.timeout_ms <= 5_000
    assert CREATE.context.forwarded_by == -1, "the original is left alone"


async def test_f6_not_controller_and_broken_connections_lead_to_another_look() -> None:
    here: Here

    def answer(endpoint: Endpoint, request: Any) -> Any:  # noqa: ANN401 - any API
        if len(here.channels.calls) == 1:
            return admin_pb2.CreateTopicsResponse(error_code=errors_pb2.NOT_CONTROLLER)
        if len(here.channels.calls) == 2:
            here.log.stop_broker(3)
            here.log.elect_controller(1)
            here.look()
            raise grpc.aio.AioRpcError(
                grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata()
            )
        return accepted(endpoint, request)

    here = Here(answer)
    here.log.elect_controller(3)
    here.look()
    response = await here.forwarder.forward(CREATE_TOPICS, CREATE)
    assert {one.error_code for one in response.topics} == {errors_pb2.NONE}
    assert [endpoint.host for endpoint, _ in here.channels.calls] == ["grpc3", "grpc3", "grpc1"]


async def test_f6_a_deletion_names_each_item_that_timed_out() -> None:
    here = Here(accepted)
    request = admin_pb2.DeleteTopicsRequest(names=["a"], topic_ids=[b"i" * 16])
    request.context.timeout_ms = 100
    response = await here.forwarder.forward(DELETE_TOPICS, request)
    assert [(one.name, one.topic_id) for one in response.topics] == [("a", b""), ("", b"i" * 16)]


async def test_b2_producer_ids_need_an_epoch() -> None:
    here = Here(lambda *_: admin_pb2.AllocateProducerIdsResponse(first_producer_id=7, count=1))
    here.log.elect_controller(1)
    here.look()
    answer = await here.forwarder.allocate_producer_ids()
    assert answer.first_producer_id == 7
    assert here.channels.calls[0][1].broker_epoch == 4
    here.identity.unregister()
    with pytest.raises(KafkaError, match="COORDINATOR_NOT_AVAILABLE"):
        await here.forwarder.allocate_producer_ids()


async def test_f6_additions_and_elections_name_each_item_that_timed_out() -> None:
    here = Here(accepted)
    context = admin_pb2.RequestContext(timeout_ms=100)
    additions = await here.forwarder.forward(
        CREATE_PARTITIONS,
        admin_pb2.CreatePartitionsRequest(
            context=context, topics=[admin_pb2.NewPartitions(name="a")]
        ),
    )
    elections = await here.forwarder.forward(
        ELECT_LEADERS,
        admin_pb2.ElectLeadersRequest(
            context=context, topics=[admin_pb2.TopicPartitions(topic="a", partitions=[0, 2])]
        ),
    )
    late = errors_pb2.REQUEST_TIMED_OUT
    assert [(one.name, one.error_code) for one in additions.topics] == [("a", late)]
    assert elections.error_code == late, "it may have asked for all partitions, and named none"
    assert [(one.partition, one.error_code) for one in elections.partitions] == [
        (0, late),
        (2, late),
    ]


async def test_f2_a_version_of_the_controller_alone_is_declined_elsewhere_at_once() -> None:
    here = Here(accepted)
    here.log.elect_controller(3)
    here.look()
    request = admin_pb2.IncrementalAlterConfigsRequest(
        changes=[admin_pb2.ConfigChange(entity_type="topic", entity_name=name) for name in "ab"]
    )
    response = await here.forwarder.forward(INCREMENTAL_ALTER_CONFIGS, request, api_version=2)
    assert not here.channels.calls
    assert response.error_code == errors_pb2.NOT_CONTROLLER
    assert [one.error_code for one in response.results] == [errors_pb2.NOT_CONTROLLER] * 2
    assert "ask broker 3" in response.results[0].error_message


@pytest.mark.parametrize("level", [1, 2, None])
async def test_f6_the_level_decides_who_writes(level: int | None) -> None:
    here = Here(lambda *_: admin_pb2.IncrementalAlterConfigsResponse())
    here.log.elect_controller(3)
    if level is not None:
        here.log.write_as_controller(FeatureLevel(name="inter_broker_protocol", level=level))
    here.look()
    request = admin_pb2.IncrementalAlterConfigsRequest()
    await here.forwarder.forward(INCREMENTAL_ALTER_CONFIGS, request)
    assert here.bridged == (["IncrementalAlterConfigs"] if level == 1 else [])
    assert len(here.channels.calls) == (0 if level == 1 else 1)
    here.channels._answer = accepted
    await here.forwarder.forward(CREATE_TOPICS, CREATE)
    assert "CreateTopics" not in here.bridged, "topics were the controller's at any level"
    direct = await here.forwarder.forward(INCREMENTAL_ALTER_CONFIGS, request, api_version=2)
    assert direct.error_code == errors_pb2.NOT_CONTROLLER
