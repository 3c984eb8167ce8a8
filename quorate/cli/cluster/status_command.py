"""``quorate status``: the state of a cluster as its brokers report it."""

from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from quorate.cli.admin_session import open_admin
from quorate.cli.cluster.cluster_check import check_cluster
from quorate.cli.output import echo
from quorate.cli.shared_options import admin_options, json_option, print_json, timeout_option
from quorate.cli.sizes import size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from quorate.cli.cluster.broker_disks import BrokerDisk
    from quorate.client.results import ClusterStatus, Metric, PartitionName


@click.command()
@admin_options
@click.option("--metrics", is_flag=True, help="Show the metrics of the brokers instead.")
@click.option(
    "--check",
    is_flag=True,
    help="Print one line for each thing that is wrong. The exit code is 0 if nothing is, 1 if the "
    "worst is a warning, and 2 if it is critical or the cluster does not answer.",
)
@timeout_option(10_000)
@json_option
def status(
    bootstrap_server: str | None,
    data: Path | None,
    metrics: bool,
    check: bool,
    timeout_ms: int,
    as_json: bool,
) -> int:
    """Show the controller, the brokers, and partitions that need attention.

    \b
    Example:
      quorate status --bootstrap-server 127.0.0.1:9092
      quorate status --data ./quorate-data --json
      quorate status --metrics
      quorate status --check || echo "the cluster needs attention"
    """
    from quorate.cli.cluster.broker_disks import broker_disks

    if check and metrics:
        raise click.UsageError("give --check or --metrics, not both")
    if check:
        return check_cluster(bootstrap_server, data, timeout_ms, as_json=as_json)
    with open_admin(bootstrap_server, data, timeout_ms) as admin:
        figures = admin.metrics()
        if metrics:
            _show_metrics(figures, as_json=as_json)
            return 0
        found = replace(admin.cluster_status(), alerts=tuple(admin.cluster_alerts()))
    disks = broker_disks(figures)
    if as_json:
        print_json(as_document(found, disks))
    else:
        _show(found, disks)
    return 0


def _show_metrics(metrics: "list[Metric]", *, as_json: bool) -> None:
    if as_json:
        print_json([asdict(metric) for metric in metrics])
        return
    for one in metrics:
        tags = ", ".join(f"{key}={value}" for key, value in sorted(one.tags.items()) if value)
        whose = f"{{{tags}}}" if tags else ""
        echo(f"broker {one.broker_id:<4} {one.group} {one.name}{whose} {one.value:g}")


def as_document(status: "ClusterStatus", disks: "Sequence[BrokerDisk]") -> dict[str, Any]:
    """Return the status as the JSON document that scripts read."""
    return asdict(status) | {"disks": [asdict(disk) for disk in disks]}


def _show(status: "ClusterStatus", disks: "Sequence[BrokerDisk]") -> None:
    controller = "none" if status.controller_id < 0 else f"broker {status.controller_id}"
    echo(f"cluster     {status.cluster_id}")
    if not status.features:
        # Every cluster has features. None are told to a client without DESCRIBE on the cluster,
        # and neither is the rest.
        echo(f"controller  {controller}")
        _show_brokers(status, ())
        echo("the rest is told to those only who are allowed to DESCRIBE the cluster")
        return
    leader = f"voter {status.quorum_leader}" if status.quorum_leader else "unknown"
    echo(f"controller  {controller} (epoch {status.controller_epoch})")
    echo(f"quorum      leader {leader}, metadata offset {status.metadata_offset}")
    _show_brokers(status, disks)
    if racks := racks_line(status):
        echo(f"racks       {racks}")
    echo(f"topics      {status.topics}, with {status.partitions} partitions")
    levels = ", ".join(f"{feature.name} {feature.level}" for feature in status.features)
    echo(f"features    {levels}")
    echo(f"offline     {_names(status.offline_partitions)}")
    echo(f"under-replicated  {_names(status.under_replicated_partitions)}")
    echo(f"under-min-ISR     {_names(status.under_min_isr_partitions)}")
    echo(f"at-min-ISR        {_names(status.at_min_isr_partitions)}")
    for alert in status.alerts:
        echo(f"alert       {alert}")


def _show_brokers(status: "ClusterStatus", disks: "Sequence[BrokerDisk]") -> None:
    disk_of = {disk.broker_id: disk for disk in disks}
    for broker in status.brokers:
        rack = f", rack {broker.rack}" if broker.rack else ""
        echo(
            f"broker {broker.id:<4} {broker.kafka} (gRPC {broker.grpc}), epoch {broker.epoch}{rack}"
        )
        if broker.id in disk_of:
            echo(f"            {disk_line(disk_of[broker.id])}")


def disk_line(disk: "BrokerDisk") -> str:
    """Return in words what a broker holds, and what its disk has left."""
    held = f"leads {disk.leaders} of its {disk.replicas} replicas, {size(disk.stored_bytes)} stored"
    if disk.failed:
        return f"{held}; its log directory has failed"
    if disk.full:
        return f"{held}; its disk is full"
    if not disk.total_bytes:
        return held
    return f"{held}, {size(disk.free_bytes)} of {size(disk.total_bytes)} free"


def racks_line(status: "ClusterStatus") -> str:
    """Return in words how the live brokers are spread over racks; empty if none has a rack."""
    without = [broker.id for broker in status.brokers if not broker.rack]
    sizes = Counter(broker.rack for broker in status.brokers if broker.rack)
    if not sizes:
        return ""
    if without:
        return (
            f"not used, because broker {', '.join(map(str, without))} has none: replicas of one "
            "partition may share a rack"
        )
    least, most = min(sizes.values()), max(sizes.values())
    each = f"{least}" if least == most else f"{least} to {most}"
    return f"{len(sizes)}, of {each} broker{'' if each == '1' else 's'} each"


def _names(partitions: "tuple[PartitionName, ...]") -> str:
    shown = ", ".join(f"{name.topic}-{name.partition}" for name in partitions[:20])
    more = f" and {len(partitions) - 20} more" if len(partitions) > 20 else ""
    return f"{len(partitions)} ({shown}{more})" if partitions else "none"
