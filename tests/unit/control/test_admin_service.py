"""The Admin service: who answers, and what status says."""

from collections.abc import AsyncGenerator
from typing import Any

import grpc
import pytest

from quorate.broker.admin.admin_service import AdminService, BrokerToControllerService
from quorate.broker.admin.cluster_status import cluster_status, offline_alert
from quorate.broker.admin.metadata_view_service import MetadataViewService
from quorate.broker.changes.table import (
    ALLOCATE_PRODUCER_IDS,
    CHANGES,
    CREATE_TOPICS,
    DELETE_TOPICS,
    A,
    Change,
    Q,
)
from quorate.broker.controller.managers.broker_manager import leadership_changes
from quorate.broker.controller.managers.decisions import ControllerTenure
from quorate.broker.controller.managers.partition_change import LiveBrokers
from quorate.broker.metadata.metadata_follower import MetadataFollower
from quorate.common.types import MetadataOffset, TopicPartition
from quorate.quorum.quorum_errors import QuorumUnavailable
from quorate_proto.v1 import admin_pb2, control_pb2, errors_pb2
from quorate_proto.v1.quorum_pb2 import QuorumStatusResponse, WatchEvent, WatchRequest
from tests.support.acls import ALL_RIGHTS, NO_AUTHORIZER
from tests.support.identities import active, registered
from tests.support.metadata import MetadataLogBuilder

NO_CONTEXT: Any = None


class Aborted(Exception):
    pass


class Context:
    async def abort(self, code: grpc.StatusCode, details: str) -> None:
        raise Aborted(code, details)


class Quorum:
    cluster_id = "c"

    def __init__(self) -> None:
        self.available = True

    async def read_offset(self) -> MetadataOffset:
        return MetadataOffset(7)

    async def status(self) -> QuorumStatusResponse:
        if not self.available:
            raise QuorumUnavailable("no voter answers")
        return QuorumStatusResponse(leader_id=2)

    async def relay_watch(self, request: WatchRequest) -> AsyncGenerator[WatchEvent, None]:
        if not self.available:
            raise QuorumUnavailable("no voter answers")
        yield WatchEvent(applied_offset=request.from_offset)


class Here:
    """A broker that is not the controller."""

    def __init__(self) -> None:
        self.log = MetadataLogBuilder()
        for broker_id in (1, 2, 3):
            self.log.start_broker(broker_id)
        self.log.elect_controller(1)
        self.log.create_topic("orders", (1, 2), (2, 3))
        self.quorum = Quorum()
        self.identity = registered(2, 4)
        self.controller = active()
        follower = MetadataFollower(None)  # type: ignore[arg-type]
        follower.image = self.log.image
        self.service = AdminService(
            identity=self.identity,
            images=follower,
            quorum=self.quorum,
            controller=self.controller,
            authorizer=NO_AUTHORIZER,
            broker_alerts=lambda: ["the ISR of orders-0 is frozen"],
        )

    async def status(self) -> admin_pb2.ClusterStatusResponse:
        context: Any = Context()
        return await self.service.ClusterStatus(admin_pb2.ClusterStatusRequest(), context)


async def test_f2_a_direct_request_at_a_non_controller_is_declined() -> None:
    service = Here().service
    create = admin_pb2.CreateTopicsRequest(topics=[admin_pb2.NewTopic(name="a")])
    assert (
        await service.perform(CREATE_TOPICS, create, NO_CONTEXT)
    ).error_code == errors_pb2.NOT_CONTROLLER
    delete = admin_pb2.DeleteTopicsRequest(names=["a"])
    assert (
        await service.perform(DELETE_TOPICS, delete, NO_CONTEXT)
    ).error_code == errors_pb2.NOT_CONTROLLER
    ids = admin_pb2.AllocateProducerIdsRequest()
    answer = await service.perform(ALLOCATE_PRODUCER_IDS, ids, NO_CONTEXT)
    assert answer.error_code == errors_pb2.NOT_CONTROLLER
    resign = admin_pb2.ResignControllerRequest()
    resigned = await service.ResignController(resign, NO_CONTEXT)
    assert resigned.error_code == errors_pb2.NOT_CONTROLLER
    leave = control_pb2.ControlledShutdownRequest()
    left = await BrokerToControllerService(active()).ControlledShutdown(leave, NO_CONTEXT)
    assert left.error_code == errors_pb2.NOT_CONTROLLER
    report = control_pb2.ReportReplicasRequest()
    told = await BrokerToControllerService(active()).ReportReplicas(report, NO_CONTEXT)
    assert told.error_code == errors_pb2.NOT_CONTROLLER


async def test_f2_a_forwarded_request_is_never_forwarded_again() -> None:
    request = admin_pb2.CreateTopicsRequest(topics=[admin_pb2.NewTopic(name="a")])
    request.context.forwarded_by = 3
    answer = await Here().service.perform(CREATE_TOPICS, request, NO_CONTEXT)
    assert answer.error_code == errors_pb2.NOT_CONTROLLER


class InOffice:
    """Controller of epoch 5."""

    controller_epoch = 5

    def __init__(self) -> None:
        self.met: list[int] = []
        self.asked = 0

    def observe_controller_epoch(self, controller_epoch: int) -> None:
        self.met.append(controller_epoch)

    async def perform(self, change: Change[Q, A], request: Q) -> A:
        self.asked += 1
        return change.answer()

    async def controlled_shutdown(
        self, request: control_pb2.ControlledShutdownRequest
    ) -> control_pb2.ControlledShutdownResponse:
        self.asked += 1
        return control_pb2.ControlledShutdownResponse()

    async def report_replicas(
        self, request: control_pb2.ReportReplicasRequest
    ) -> control_pb2.ReportReplicasResponse:
        self.asked += 1
        return control_pb2.ReportReplicasResponse()


@pytest.mark.parametrize(("epoch", "obeyed"), [(0, True), (5, True), (4, False), (6, False)])
async def test_e3_brokers_say_which_controller_they_mean(epoch: int, *, obeyed: bool) -> None:
    """Lower: they mean an earlier one, and are to look again. Higher: this one is deposed."""
    controller: Any = InOffice()
    here = Here()
    here.controller.fill(controller)
    request = admin_pb2.CreateTopicsRequest(
        context=admin_pb2.RequestContext(controller_epoch=epoch)
    )
    created = await here.service.perform(CREATE_TOPICS, request, NO_CONTEXT)
    leave = control_pb2.ControlledShutdownRequest(controller_epoch=epoch)
    left = await BrokerToControllerService(active(controller)).ControlledShutdown(leave, NO_CONTEXT)
    report = control_pb2.ReportReplicasRequest(controller_epoch=epoch)
    told = await BrokerToControllerService(active(controller)).ReportReplicas(report, NO_CONTEXT)
    expected = errors_pb2.NONE if obeyed else errors_pb2.NOT_CONTROLLER
    assert {created.error_code, left.error_code, told.error_code} == {expected}
    assert controller.asked == (3 if obeyed else 0)
    assert controller.met == ([] if obeyed else [epoch, epoch, epoch])


def said_by_brokers() -> list[str]:
    """Methods whose request says which controller it means."""
    return [*(change.rpc for change in CHANGES), "ResignController", "MoveController"]


@pytest.mark.parametrize("name", said_by_brokers())
async def test_e3_no_request_is_carried_out_by_a_controller_that_is_not_meant(name: str) -> None:
    controller: Any = InOffice()
    here = Here()
    here.controller.fill(controller)
    method = admin_pb2.DESCRIPTOR.services_by_name["Admin"].methods_by_name[name]
    request = getattr(admin_pb2, method.input_type.name)()
    request.context.controller_epoch = 6
    handler: Any = here.service.handlers()[name]
    answer = await handler.unary_unary(request, NO_CONTEXT)
    assert answer.error_code == errors_pb2.NOT_CONTROLLER
    assert controller.met == [6]


async def test_e1_status_names_the_controller_and_the_quorums_leader() -> None:
    status = await Here().status()
    assert (status.cluster_id, status.quorum_leader) == ("c", 2)
    assert (status.controller_id, status.controller_epoch) == (1, 1)
    assert [broker.broker_id for broker in status.brokers] == [1, 2, 3]
    assert (status.topics, status.partitions) == (1, 2)
    assert list(status.alerts) == ["the ISR of orders-0 is frozen"]


async def test_the_metadata_log_is_passed_on_as_it_comes() -> None:
    quorum, context = Quorum(), Context()
    view = MetadataViewService(quorum, MetadataFollower(None), lambda: ALL_RIGHTS)  # type: ignore[arg-type]
    request = WatchRequest(from_offset=7)
    events = [event async for event in view.WatchMetadata(request, context)]  # type: ignore[arg-type]
    assert [event.applied_offset for event in events] == [7]
    quorum.available = False
    with pytest.raises(Aborted, match="no voter answers"):
        [event async for event in view.WatchMetadata(request, context)]  # type: ignore[arg-type]


async def test_d1_status_is_told_without_a_quorum_too() -> None:
    here = Here()
    here.quorum.available = False
    status = await here.status()
    assert status.quorum_leader == 0
    assert status.controller_id == 1


async def test_b2_a_broker_that_is_not_registered_has_no_status_to_tell() -> None:
    here = Here()
    here.identity.unregister()
    with pytest.raises(Aborted):
        await here.status()


def test_c2_status_counts_what_is_offline_and_what_lacks_replicas() -> None:
    log = MetadataLogBuilder()
    log.start_broker(1)
    log.start_broker(2)
    log.elect_controller(1)
    log.create_topic("orders", (1, 2), (2,))
    whole = cluster_status(log.image, lambda _: 1)
    assert not whole.offline_partitions
    assert not whole.under_replicated_partitions
    log.stop_broker(2)
    office = ControllerTenure(log.image.controller_id, log.image.controller_epoch)
    live = LiveBrokers(frozenset(log.image.brokers))
    changes = leadership_changes(log.image, office, live, unclean=lambda _topic: False)
    assert log.transact(*changes, atomic=False).ok
    hurt = cluster_status(log.image, lambda _: 1)
    assert [(one.topic, one.partition) for one in hurt.offline_partitions] == [("orders", 1)]
    assert [(one.topic, one.partition) for one in hurt.under_replicated_partitions] == [
        ("orders", 0)
    ]
    assert offline_alert(hurt.offline_partitions).startswith("1 partitions are offline: orders-1: ")


def test_c22_many_offline_partitions_are_one_alert() -> None:
    offline = [admin_pb2.PartitionRef(topic="t", partition=number) for number in range(7)]
    assert "7 partitions are offline: t-0, t-1, t-2, t-3, t-4 and 2 more: " in offline_alert(
        offline
    )


def test_c11_replicas_on_their_way_are_no_trouble() -> None:
    log = MetadataLogBuilder()
    for broker_id in (1, 2, 3):
        log.start_broker(broker_id)
    log.elect_controller(1)
    log.create_topic("t", (1, 2))
    assert log.reassign(TopicPartition("t", 0), replicas=(1, 2, 3), target=(3, 2)).ok
    moving = cluster_status(log.image, lambda _: 2)
    assert not moving.under_replicated_partitions
    assert not moving.at_min_isr_partitions
    log.stop_broker(2)
    office = ControllerTenure(log.image.controller_id, log.image.controller_epoch)
    live = LiveBrokers(frozenset(log.image.brokers))
    changes = leadership_changes(log.image, office, live, unclean=lambda _topic: False)
    assert log.transact(*changes, atomic=False).ok
    hurt = cluster_status(log.image, lambda _: 2)
    assert [one.topic for one in hurt.under_replicated_partitions] == ["t"]
    assert [one.topic for one in hurt.under_min_isr_partitions] == ["t"]
