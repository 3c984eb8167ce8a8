"""Who may call what at the listener of brokers."""

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from google.protobuf.message_factory import GetMessageClass

from quorate.broker.metadata.metadata_follower import ChangeKind, Observer
from quorate.broker.security.peer_guard import KnownController, refusal
from quorate.common.grpc_support.checked_calls import CheckedCalls
from quorate.common.tls.identity import Principal, Role, broker_of, node_name, role_name
from quorate.common.types import BrokerId, ControllerEpoch, MetadataOffset, SessionId
from quorate.metadata_log.image import Changes, ControllerState, Image
from quorate_proto.v1 import (
    admin_pb2,
    console_pb2,
    control_pb2,
    replication_pb2,
    transactions_pb2,
)
from tests.support.followers import ShownImage

SENDERS: dict[str, tuple[Any, Any]] = {
    "LeaderAndIsr": (
        control_pb2.LeaderAndIsrRequest(header=control_pb2.ControlHeader(controller_id=2)),
        control_pb2.LeaderAndIsrRequest(header=control_pb2.ControlHeader(controller_id=3)),
    ),
    "StopReplica": (
        control_pb2.StopReplicaRequest(header=control_pb2.ControlHeader(controller_id=2)),
        control_pb2.StopReplicaRequest(header=control_pb2.ControlHeader(controller_id=3)),
    ),
    "UpdateMetadata": (
        control_pb2.UpdateMetadataRequest(header=control_pb2.ControlHeader(controller_id=2)),
        control_pb2.UpdateMetadataRequest(header=control_pb2.ControlHeader(controller_id=3)),
    ),
    "Probe": (
        control_pb2.ProbeRequest(controller_id=2),
        control_pb2.ProbeRequest(controller_id=3),
    ),
    "ControlledShutdown": (
        control_pb2.ControlledShutdownRequest(broker_id=2),
        control_pb2.ControlledShutdownRequest(broker_id=3),
    ),
    "ReportReplicas": (
        control_pb2.ReportReplicasRequest(broker_id=2),
        control_pb2.ReportReplicasRequest(broker_id=3),
    ),
    "ReportLinks": (
        control_pb2.ReportLinksRequest(broker_id=2),
        control_pb2.ReportLinksRequest(broker_id=3),
    ),
    "FindStreamListener": (
        replication_pb2.FindStreamListenerRequest(replica_id=2),
        replication_pb2.FindStreamListenerRequest(replica_id=3),
    ),
    "OffsetsForLeaderEpoch": (
        replication_pb2.OffsetsForLeaderEpochRequest(replica_id=2),
        replication_pb2.OffsetsForLeaderEpochRequest(replica_id=3),
    ),
    "WriteMarkers": (
        transactions_pb2.WriteMarkersRequest(broker_id=2),
        transactions_pb2.WriteMarkersRequest(broker_id=3),
    ),
    "VerifyPartitions": (
        transactions_pb2.VerifyPartitionsRequest(broker_id=2),
        transactions_pb2.VerifyPartitionsRequest(broker_id=3),
    ),
    "CarryOut": (
        console_pb2.CarryOutRequest(broker_id=2),
        console_pb2.CarryOutRequest(broker_id=3),
    ),
    "ReadFigures": (
        console_pb2.FiguresRequest(broker_id=2),
        console_pb2.FiguresRequest(broker_id=3),
    ),
    "ReadAuditLog": (
        console_pb2.AuditLogRequest(broker_id=2),
        console_pb2.AuditLogRequest(broker_id=3),
    ),
    "AllocateProducerIds": (
        admin_pb2.AllocateProducerIdsRequest(
            broker_id=2, context=admin_pb2.RequestContext(forwarded_by=2)
        ),
        admin_pb2.AllocateProducerIdsRequest(
            broker_id=3, context=admin_pb2.RequestContext(forwarded_by=2)
        ),
    ),
}
"""A request that broker 2 may send, and one that it may not."""

BROKER_SERVICES = [
    control_pb2.DESCRIPTOR.services_by_name["BrokerControl"],
    control_pb2.DESCRIPTOR.services_by_name["ControllerDuty"],
    replication_pb2.DESCRIPTOR.services_by_name["Replication"],
    transactions_pb2.DESCRIPTOR.services_by_name["Transactions"],
    console_pb2.DESCRIPTOR.services_by_name["ConsolePeers"],
]


def named(*names: str) -> Principal:
    return Principal(frozenset(names))


def broker(number: int) -> Principal:
    return named(node_name(Role.BROKER, number), role_name(Role.BROKER))


STRANGERS = {
    "nobody": named(),
    "a voter": named(node_name(Role.VOTER, 2), role_name(Role.VOTER)),
    "an administrator": named(role_name(Role.ADMIN)),
    "a role without a node": named(role_name(Role.BROKER)),
    "a node without the role": named(node_name(Role.BROKER, 2)),
    "two brokers": named(
        node_name(Role.BROKER, 2), node_name(Role.BROKER, 3), role_name(Role.BROKER)
    ),
    "a name that only begins right": named("broker-2.quorate.example", role_name(Role.BROKER)),
}


def methods() -> Iterator[tuple[str, Any]]:
    for service in (*BROKER_SERVICES, admin_pb2.DESCRIPTOR.services_by_name["Admin"]):
        for method in service.methods:
            yield f"/{service.full_name}/{method.name}", GetMessageClass(method.input_type)


@pytest.mark.parametrize("kind", STRANGERS)
def test_nobody_but_a_broker_may_call_anything(kind: str) -> None:
    assert broker_of(STRANGERS[kind]) is None
    for method, request in methods():
        why = refusal(STRANGERS[kind], method, request())
        assert why is not None, method
        assert "only brokers" in why


@pytest.mark.parametrize(
    "method",
    [f"/{one.full_name}/{method.name}" for one in BROKER_SERVICES for method in one.methods],
)
def test_a_broker_sends_only_what_is_its_own_to_send(method: str) -> None:
    name = method.rpartition("/")[2]
    if name == "Fetch":
        assert refusal(broker(2), method, iter(())) is None, "the session looks at each frame"
        return
    own, others = SENDERS[name]
    assert refusal(broker(2), method, own) is None
    assert refusal(broker(2), method, others) == f"{name} of broker 3 is not broker 2's to send"


def test_f5_a_change_is_forwarded_by_whom_it_says() -> None:
    for method, make in methods():
        if not method.startswith("/quorate.v1.Admin/") or method.endswith("/ClusterStatus"):
            continue
        name, request = method.rpartition("/")[2], make()
        if "context" not in request.DESCRIPTOR.fields_by_name:
            assert refusal(broker(2), method, request) == f"{name} is not served here"
            continue
        for claimed in (-1, 0, 3):
            request.context.forwarded_by = claimed
            assert refusal(broker(2), method, request) is not None, (method, claimed)
        request.context.forwarded_by = 2
        if name != "AllocateProducerIds":
            assert refusal(broker(2), method, request) is None, method


def test_producer_ids_are_for_the_broker_that_asks() -> None:
    method = "/quorate.v1.Admin/AllocateProducerIds"
    own, others = SENDERS["AllocateProducerIds"]
    assert refusal(broker(2), method, own) is None
    assert refusal(broker(2), method, others) is not None


def test_a_method_that_is_not_known_here_is_closed() -> None:
    request = admin_pb2.CreateTopicsRequest(context=admin_pb2.RequestContext(forwarded_by=2))
    assert (
        refusal(broker(2), "/quorate.v1.BrokerControl/Obey", request) == "Obey is not served here"
    )


# --- controller epochs ----------------------------------------------------------------------------


def image(controller: int | None, epoch: int) -> Image:
    held = None
    if controller is not None:
        held = ControllerState(BrokerId(controller), SessionId(bytes(16)), 1, MetadataOffset(1))
    return Image(controller=held, controller_epoch=ControllerEpoch(epoch))


class FollowedImages(ShownImage):
    """A follower whose image the test sets, and which tells its observer."""

    def subscribe(self, observer: Observer, *kinds: ChangeKind) -> None:
        self._observer = observer

    def come_to(self, image: Image) -> None:
        self.show(image)
        self._observer(image, Changes())


def command(sender: int, epoch: int) -> Iterator[tuple[str, Any]]:
    """Every request that only the controller sends."""
    said = {"controller_id": sender, "controller_epoch": epoch}
    for method in control_pb2.DESCRIPTOR.services_by_name["BrokerControl"].methods:
        make = GetMessageClass(method.input_type)
        named = "header" in method.input_type.fields_by_name
        request = make(header=control_pb2.ControlHeader(**said)) if named else make(**said)
        yield f"/quorate.v1.BrokerControl/{method.name}", request


async def test_e3_control_requests_come_from_the_controller_of_their_epoch() -> None:
    images = FollowedImages(lambda: image(1, 7))
    known = KnownController(images, lambda: False)
    for method, request in command(2, 7):
        assert await known.why_not_obey(method, request) == (
            "broker 2 is not the controller of epoch 7: broker 1 is"
        )
    for sender, epoch in ((1, 7), (2, 6)):  # An earlier epoch is for the fence to refuse (rule 1).
        for method, request in command(sender, epoch):
            assert await known.why_not_obey(method, request) is None
    images.come_to(image(None, 7))
    for method, request in command(1, 7):
        assert await known.why_not_obey(method, request) is None, "it is about to resign"


async def test_e3_an_epoch_that_the_log_does_not_have_is_not_believed() -> None:
    images = FollowedImages(lambda: image(1, 7))
    known = KnownController(images, lambda: False, patience_s=0.0)
    said = "controller epoch 1000000 is not in the metadata log, which has 7"
    named = 0
    for method, make in methods():
        request = make()
        fields = request.DESCRIPTOR.fields_by_name
        if "header" in fields:
            request.header.controller_epoch = 1_000_000
        elif "context" in fields:
            request.context.controller_epoch = 1_000_000
        elif "controller_epoch" in fields:
            request.controller_epoch = 1_000_000
        else:
            continue
        named += 1
        assert await known.why_not_obey(method, request) == said, method
    assert named > 25


async def test_rule_6_a_broker_that_does_not_see_the_quorum_obeys_a_newer_epoch() -> None:
    images = FollowedImages(lambda: image(1, 7))
    known = KnownController(images, lambda: True, patience_s=0.0)
    for method, request in command(2, 8):
        assert await known.why_not_obey(method, request) is None


async def test_e3_news_of_an_election_waits_for_the_log() -> None:
    images = FollowedImages(lambda: image(1, 7))
    known = KnownController(images, lambda: False)
    asked = [
        asyncio.create_task(known.why_not_obey(method, request))
        for sender in (2, 3)
        for method, request in command(sender, 8)
    ]
    await asyncio.sleep(0)
    assert not any(task.done() for task in asked)
    images.come_to(image(2, 8))
    answers = await asyncio.gather(*asked)
    half = len(answers) // 2
    assert answers[:half] == [None] * half
    assert answers[half:] == ["broker 3 is not the controller of epoch 8: broker 2 is"] * half


class Counting(CheckedCalls):
    """Lets through what it has counted."""

    def __init__(self) -> None:
        self.checked: list[str] = []

    async def check(self, method: str, request: object, context: object) -> None:
        self.checked.append(f"{method} {request}")


async def test_every_call_is_checked_though_a_method_is_put_behind_the_check_once() -> None:
    guard = Counting()

    def serving(answer: str) -> "grpc.RpcMethodHandler[Any, Any]":
        async def behaviour(request: str, _context: object) -> str:
            return f"{answer} {request}"

        return grpc.unary_unary_rpc_method_handler(behaviour)

    handlers = {"/a": serving("a"), "/b": serving("b")}

    async def found(details: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[Any, Any]":
        return handlers[details.method]

    async def call(method: str, request: str) -> tuple[object, str]:
        details: Any = SimpleNamespace(method=method)
        handler = await guard.intercept_service(found, details)
        return handler, await handler.unary_unary(request, None)

    first, said = await call("/a", "1")
    again, said_again = await call("/a", "2")
    assert (said, said_again, again) == ("a 1", "a 2", first)
    assert (await call("/b", "3"))[1] == "b 3"
    handlers["/a"] = serving("another")
    assert (await call("/a", "4"))[1] == "another 4", "of the handler that is there now"
    assert guard.checked == ["/a 1", "/a 2", "/b 3", "/a 4"]
