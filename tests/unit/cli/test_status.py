"""``quorate status``: what is not told is not shown as nothing."""

from dataclasses import replace
from typing import Any

import pytest

from quorate.cli.cluster.broker_disks import BrokerDisk, broker_disks
from quorate.cli.cluster.cluster_findings import Severity, findings, worst
from quorate.cli.cluster.status_command import _show, as_document, disk_line, racks_line
from quorate.client.results import BrokerInfo, ClusterStatus, FeatureInfo, Metric, PartitionName


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
    _show(status(), [])
    out = capsys.readouterr().out
    assert "broker 1    a:1 (gRPC a:2)" in out
    assert "allowed to DESCRIBE the cluster" in out
    assert not [word for word in ("topics", "offline", "epoch 0", "unknown") if word in out]


def test_everybody_else_is_shown_everything(capsys: pytest.CaptureFixture[str]) -> None:
    _show(status(FeatureInfo(name="metadata_version", level=3, newest=3, meaning="m")), [])
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


DISK = BrokerDisk(
    broker_id=1,
    leaders=3,
    replicas=5,
    stored_bytes=1_500_000,
    free_bytes=50_000_000,
    total_bytes=100_000_000,
    failed=False,
    full=False,
)
LEVEL = FeatureInfo(name="metadata_version", level=3, newest=3, meaning="m")
FINE = replace(status(LEVEL), quorum_leader=1)
ORDERS = PartitionName(topic="orders", partition=0)


def test_a_broker_shows_what_it_holds_and_what_its_disk_has_left(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _show(FINE, [DISK])
    out = capsys.readouterr().out
    assert "leads 3 of its 5 replicas, 1.5 MB stored, 50.0 MB of 100.0 MB free" in out
    assert disk_line(replace(DISK, full=True)).endswith("stored; its disk is full")
    assert disk_line(replace(DISK, failed=True)).endswith("its log directory has failed")
    assert as_document(FINE, [DISK])["disks"][0]["free_bytes"] == 50_000_000


def test_disks_are_read_from_the_metrics_of_brokers() -> None:
    figures = {"LeaderCount": 3, "PartitionCount": 5, "StoredBytes": 1_500_000}
    figures |= {"DiskFreeBytes": 50_000_000, "DiskTotalBytes": 100_000_000, "Other": 7}
    metrics = [Metric(1, "LogManager", name, {}, value) for name, value in figures.items()]
    assert broker_disks([*metrics, Metric(1, "g", "LeaderCount", {"a": "b"}, 9)]) == [DISK]


def test_nothing_is_found_wrong_with_a_cluster_that_is_fine() -> None:
    assert findings(FINE, [DISK]) == []
    assert worst([]) is Severity.FINE


@pytest.mark.parametrize(
    ("changed", "severity", "text"),
    [
        ({"features": ()}, Severity.CRITICAL, "allowed to DESCRIBE"),
        ({"controller_id": -1}, Severity.CRITICAL, "there is no controller"),
        ({"quorum_leader": 0}, Severity.CRITICAL, "quorum has no leader"),
        ({"offline_partitions": (ORDERS,)}, Severity.CRITICAL, "offline: nobody leads them"),
        (
            {"under_min_isr_partitions": (ORDERS,), "under_replicated_partitions": (ORDERS,)},
            Severity.CRITICAL,
            "acks=all is refused (orders-0)",
        ),
        ({"at_min_isr_partitions": (ORDERS,)}, Severity.WARNING, "one more loss"),
        ({"under_replicated_partitions": (ORDERS,)}, Severity.WARNING, "under-replicated"),
        ({"alerts": ("voter 2 is away",)}, Severity.WARNING, "voter 2 is away"),
        ({"brokers": in_racks("a", "").brokers}, Severity.WARNING, "broker 2 has none"),
    ],
)
def test_each_trouble_of_a_cluster_is_one_finding(
    changed: dict[str, Any], severity: Severity, text: str
) -> None:
    (found,) = findings(replace(FINE, **changed), [DISK])
    assert found.severity is severity
    assert text in found.text


@pytest.mark.parametrize(
    ("changed", "severity", "text"),
    [
        ({"failed": True}, Severity.CRITICAL, "has failed"),
        ({"full": True}, Severity.CRITICAL, "is full"),
        ({"free_bytes": 9_000_000}, Severity.WARNING, "only 9% free"),
    ],
)
def test_each_trouble_of_a_disk_is_one_finding(
    changed: dict[str, Any], severity: Severity, text: str
) -> None:
    (found,) = findings(FINE, [replace(DISK, **changed)])
    assert (found.severity, text in found.text) == (severity, True)


def test_the_worst_comes_first_and_decides() -> None:
    many = tuple(PartitionName(topic="t", partition=number) for number in range(7))
    found = findings(replace(FINE, alerts=("a",), offline_partitions=many), [DISK])
    assert [one.severity for one in found] == [Severity.CRITICAL, Severity.WARNING]
    assert found[0].text.endswith("(t-0, t-1, t-2, t-3, t-4 and 2 more)")
    assert worst(found) is Severity.CRITICAL
