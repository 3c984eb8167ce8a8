"""``quorate status``: what is not told is not shown as nothing."""

from dataclasses import replace

import pytest

from quorate.cli.cluster.status_command import _show, racks_line
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


def in_racks(*racks: str) -> ClusterStatus:
    brokers = (
        BrokerInfo(id=number, epoch=8, kafka="a:1", grpc="a:2", rack=rack)
        for number, rack in enumerate(racks, 1)
    )
    return replace(status(), brokers=tuple(brokers))


@pytest.mark.parametrize(
    ("racks", "said"),
    [
        (("", ""), ""),
        (("a", "b"), "2, of 1 broker each"),
        (("a", "a", "b", "b"), "2, of 2 brokers each"),
        (("a", "a", "b"), "2, of 1 to 2 brokers each"),
    ],
)
def test_racks_are_counted(racks: tuple[str, ...], said: str) -> None:
    assert racks_line(in_racks(*racks)) == said


def test_racks_that_placement_ignores_are_said_to_be() -> None:
    assert "not used, because broker 2, 3 has none" in racks_line(in_racks("a", "", ""))
