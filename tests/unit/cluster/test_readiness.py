"""When a cluster counts as whole."""

from quorate.client.results import BrokerInfo, ClusterStatus
from quorate.cluster.readiness import missing_from


def status(brokers: list[int], controller_id: int, controller_epoch: int = 1) -> ClusterStatus:
    return ClusterStatus(
        cluster_id="c",
        controller_id=controller_id,
        controller_epoch=controller_epoch,
        quorum_leader=1,
        metadata_offset=10,
        brokers=tuple(
            BrokerInfo(id=broker, epoch=5, kafka="h:1", grpc="h:2", rack="") for broker in brokers
        ),
        offline_partitions=(),
        under_replicated_partitions=(),
        under_min_isr_partitions=(),
        at_min_isr_partitions=(),
        alerts=(),
        topics=0,
        partitions=0,
        features=(),
    )


def test_whole_when_all_know_all_and_one_live_controller() -> None:
    assert missing_from({1: status([1, 2], 2), 2: status([1, 2], 2)}) is None


def test_a_broker_unknown_to_another_is_named() -> None:
    missing = missing_from({1: status([1], 1), 2: status([1, 2], 1)})
    assert missing == "broker 1 does not know broker 2 yet"


def test_a_missing_controller_is_named() -> None:
    assert missing_from({1: status([1], -1)}) == "broker 1 knows no controller yet"


def test_brokers_must_agree_on_the_controllers_epoch() -> None:
    missing = missing_from({1: status([1, 2], 1, 3), 2: status([1, 2], 1, 4)})
    assert missing == "the brokers do not agree on the controller yet"
