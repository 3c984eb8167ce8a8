"""``quorate status``: what is not told is not shown as nothing."""

import pytest

from quorate.cli.cluster.status_command import _show
from quorate.client.results import BrokerInfo, ClusterStatus, FeatureInfo


def status(*features: FeatureInfo) -> ClusterStatus:
    return ClusterStatus(
        cluster_id="c",
        controller_id=1,
        controller_epoch=0,
        quorum_leader=0,
        metadata_offset=0,
        brokers=(BrokerInfo(id=1, epoch=8, kafka="a:1", grpc="a:2", rack=""),),
        offline_partitions=(),
        under_replicated_partitions=(),
        under_min_isr_partitions=(),
        at_min_isr_partitions=(),
        alerts=(),
        topics=0,
        partitions=0,
        features=features,
    )


def test_who_may_not_describe_the_cluster_is_shown_no_zeros(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _show(status())
    out = capsys.readouterr().out
    assert "broker 1    a:1 (gRPC a:2)" in out
    assert "allowed to DESCRIBE the cluster" in out
    assert not [word for word in ("topics", "offline", "epoch 0", "unknown") if word in out]


def test_everybody_else_is_shown_everything(capsys: pytest.CaptureFixture[str]) -> None:
    _show(status(FeatureInfo(name="metadata_version", level=3, newest=3, meaning="m")))
    out = capsys.readouterr().out
    assert "topics      0, with 0 partitions" in out
    assert "DESCRIBE" not in out
