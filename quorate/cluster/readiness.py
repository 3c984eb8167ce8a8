"""Checks that a cluster is complete: all brokers are registered and know each other, and a
controller is active.

It is not enough that a controller is named: after a crash, the record may still name the
incarnation that died. The named controller must answer as the controller.
"""

import logging
from collections.abc import Sequence

import grpc

from quorate.client.grpc_channels import BrokerStubs, open_channel
from quorate.client.results import ClusterStatus
from quorate.client.security import read_options
from quorate.cluster.client_options import client_options_of
from quorate.cluster.layout import Node
from quorate_proto.v1 import admin_pb2, errors_pb2, replication_pb2

log = logging.getLogger(__name__)

CALL_TIMEOUT_S = 2.0


class Readiness:
    """Asks the brokers themselves over gRPC whether the cluster is complete. It is a context
    manager."""

    def __init__(self, brokers: Sequence[Node]) -> None:
        self._stubs = {node.id: _stubs(node) for node in brokers}

    def __enter__(self) -> "Readiness":
        return self

    def __exit__(self, *exc_info: object) -> None:
        for stubs in self._stubs.values():
            stubs.close()

    def what_is_missing(self) -> str | None:
        """Return what the cluster still lacks, in words, or None if it is complete."""
        statuses = {}
        for broker_id, stubs in self._stubs.items():
            status = _status(stubs)
            if status is None:
                return f"waiting for broker {broker_id} to register"
            statuses[broker_id] = status
        return (
            missing_from(statuses)
            or self._missing_controller(statuses)
            or self._missing_for_clients(set(statuses))
        )

    def _missing_controller(self, statuses: dict[int, ClusterStatus]) -> str | None:
        controller_id = next(iter(statuses.values())).controller_id
        request = admin_pb2.CreateTopicsRequest(validate_only=True)
        try:
            answer = self._stubs[controller_id].admin.CreateTopics(request, timeout=CALL_TIMEOUT_S)
        except grpc.RpcError as error:
            log.debug("controller %s does not answer: %s", controller_id, error)
            return f"waiting for controller {controller_id} to answer"
        if answer.error_code != errors_pb2.NONE:
            return f"waiting for broker {controller_id} to take office as controller"
        return None

    def _missing_for_clients(self, wanted: set[int]) -> str | None:
        """Return what Kafka clients would miss; they receive it from the controller, a little
        later."""
        for broker_id, stubs in self._stubs.items():
            try:
                answer = stubs.range_read.DescribeTopics(
                    replication_pb2.DescribeTopicsRequest(), timeout=CALL_TIMEOUT_S
                )
            except grpc.RpcError as error:
                log.debug("no metadata from %s: %s", stubs.address, error)
                return f"waiting for broker {broker_id} to answer"
            if wanted - {broker.broker_id for broker in answer.brokers}:
                return f"broker {broker_id} has not been told of all brokers yet"
        return None


def _stubs(node: Node) -> BrokerStubs:
    security = read_options(client_options_of(node.folder)).grpc
    return BrokerStubs(node.grpc_address, open_channel(node.grpc_address, security))


def missing_from(statuses: dict[int, ClusterStatus]) -> str | None:
    """Return what the brokers' own views lack: a broker, or a live controller that all agree on."""
    wanted = set(statuses)
    for broker_id, status in statuses.items():
        if unknown := wanted - {broker.id for broker in status.brokers}:
            ids = ", ".join(map(str, sorted(unknown)))
            return f"broker {broker_id} does not know broker {ids} yet"
        if status.controller_id not in wanted:
            return f"broker {broker_id} knows no controller yet"
    claims = {(status.controller_id, status.controller_epoch) for status in statuses.values()}
    if len(claims) > 1:
        return "the brokers do not agree on the controller yet"
    return None


def _status(stubs: BrokerStubs) -> ClusterStatus | None:
    try:
        answer = stubs.admin.ClusterStatus(admin_pb2.ClusterStatusRequest(), timeout=CALL_TIMEOUT_S)
    except grpc.RpcError as error:
        log.debug("no status from %s: %s", stubs.address, error)
        return None
    return ClusterStatus.from_proto(answer)
