"""Who may call what at the listener of brokers."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from google.protobuf.message_factory import GetMessageClass

from quorate.broker.security.peer_guard import broker_of, refusal
from quorate.common.grpc_support.checked_calls import CheckedCalls
from quorate.common.tls.identity import Principal, Role, node_name, role_name
from quorate_proto.v1 import admin_pb2, control_pb2, replication_pb2, transactions_pb2

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
