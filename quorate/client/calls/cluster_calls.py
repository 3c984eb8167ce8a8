"""Calls about the cluster as a whole: its state, its controller, its features."""

from collections.abc import Mapping

from quorate.client.call_steps import Steps, ToAllBrokers, ToAnyBroker, ToController
from quorate.client.results import ClusterStatus, FeatureResult, Metric
from quorate_proto.v1 import admin_pb2


def cluster_status() -> Steps[ClusterStatus]:
    """Return the status of the cluster from the first broker that answers."""
    answer = yield ToAnyBroker("ClusterStatus", admin_pb2.ClusterStatusRequest())
    return ClusterStatus.from_proto(answer)


def cluster_alerts() -> Steps[list[str]]:
    """Return the alerts of every live broker, for an operator (C18, rule 6).

    Only the controller knows which control requests have no answer, and only each broker itself
    knows whether it has lost contact with the quorum. A broker that does not answer is an alert,
    too.
    """
    status = yield from cluster_status()
    brokers = {broker.grpc: broker for broker in status.brokers}
    request = admin_pb2.ClusterStatusRequest()
    answers = yield ToAllBrokers(list(brokers), "ClusterStatus", request)
    alerts = {alert for answer in answers.values() if answer for alert in answer.alerts}
    alerts |= {
        f"broker {brokers[address].id} does not answer at {address}"
        for address, answer in answers.items()
        if answer is None
    }
    return sorted(alerts)


def metrics() -> Steps[list[Metric]]:
    """Return the metrics of every live broker that answers."""
    status = yield from cluster_status()
    brokers = {broker.grpc: broker for broker in status.brokers}
    request = admin_pb2.ClusterStatusRequest(with_metrics=True)
    answers = yield ToAllBrokers(list(brokers), "ClusterStatus", request)
    return [
        Metric.from_proto(brokers[address].id, metric)
        for address, answer in answers.items()
        if answer is not None
        for metric in answer.metrics
    ]


def resign_controller() -> Steps[int]:
    """Make the controller resign (E5); return the controller epoch that it gave up."""
    answer: admin_pb2.ResignControllerResponse = yield ToController(
        "ResignController",
        admin_pb2.ResignControllerRequest(),
        "resigning the controller",
        ends_tenure=True,
    )
    return answer.controller_epoch


def move_controller(to: int) -> Steps[int]:
    """Make broker ``to`` the controller (E5); return the new controller epoch.

    Raises:
        RequestFailed: ``to`` is no live broker.
    """
    answer: admin_pb2.MoveControllerResponse = yield ToController(
        "MoveController",
        admin_pb2.MoveControllerRequest(broker_id=to),
        "moving the controller",
        ends_tenure=True,
    )
    return answer.controller_epoch


def update_features(
    levels: Mapping[str, int],
    *,
    allow_downgrade: bool = False,
    validate_only: bool = False,
) -> Steps[list[FeatureResult]]:
    """Raise or lower features (B4) independently of each other.

    Level 0 stands for the highest level that all processes support.
    """
    request = admin_pb2.UpdateFeaturesRequest(
        updates=[
            admin_pb2.FeatureUpdate(name=name, level=level, allow_downgrade=allow_downgrade)
            for name, level in levels.items()
        ],
        validate_only=validate_only,
    )
    answer: admin_pb2.UpdateFeaturesResponse = yield ToController(
        "UpdateFeatures", request, "updating features"
    )
    return [FeatureResult.from_proto(result) for result in answer.results]
