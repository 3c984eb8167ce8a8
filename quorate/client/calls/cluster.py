"""The cluster as a whole: its state, its controller, its features."""

from collections.abc import Mapping

from quorate.client.results import ClusterStatus, FeatureResult, Metric
from quorate.client.steps import Steps, ToAnyBroker, ToController, ToEachBroker
from quorate_proto.v1 import admin_pb2


def cluster_status() -> Steps[ClusterStatus]:
    """The cluster as the first broker that answers knows it."""
    answer = yield ToAnyBroker("ClusterStatus", admin_pb2.ClusterStatusRequest())
    return ClusterStatus.from_proto(answer)


def cluster_alerts() -> Steps[list[str]]:
    """What needs an operator's eye, asked of every live broker (C18, rule 6).

    The controller alone knows which control requests have no answer, each broker whether it
    has lost sight of the quorum; one that does not answer is an alert itself.
    """
    status = yield from cluster_status()
    brokers = {broker.grpc: broker for broker in status.brokers}
    request = admin_pb2.ClusterStatusRequest()
    answers = yield ToEachBroker(list(brokers), "ClusterStatus", request)
    alerts = {alert for answer in answers.values() if answer for alert in answer.alerts}
    alerts |= {
        f"broker {brokers[address].id} does not answer at {address}"
        for address, answer in answers.items()
        if answer is None
    }
    return sorted(alerts)


def metrics() -> Steps[list[Metric]]:
    """What every live broker tells of itself; those that do not answer are left out."""
    status = yield from cluster_status()
    brokers = {broker.grpc: broker for broker in status.brokers}
    request = admin_pb2.ClusterStatusRequest(with_metrics=True)
    answers = yield ToEachBroker(list(brokers), "ClusterStatus", request)
    return [
        Metric.from_proto(brokers[address].id, metric)
        for address, answer in answers.items()
        if answer is not None
        for metric in answer.metrics
    ]


def resign_controller() -> Steps[int]:
    """Makes the controller give up its office (E5); the controller epoch it gave up."""
    answer: admin_pb2.ResignControllerResponse = yield ToController(
        "ResignController",
        admin_pb2.ResignControllerRequest(),
        "resigning the controller",
        ends_tenure=True,
    )
    return answer.controller_epoch


def move_controller(to: int) -> Steps[int]:
    """Hands the controller's office to broker ``to`` (E5); the new controller epoch.

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
    """Raises or lowers features (B4), each on its own; level 0: what everybody understands."""
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
