"""``quorate status --check``: one line for each thing that is wrong, and an exit code."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from quorate.cli.admin_session import open_admin
from quorate.cli.output import echo
from quorate.cli.shared_options import print_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from quorate.cli.cluster.cluster_findings import Finding


def check_cluster(
    bootstrap_server: str | None, data: Path | None, timeout_ms: int, *, as_json: bool
) -> int:
    """Look at the cluster, print what is wrong, and return the exit code."""
    from quorate.cli.cluster.cluster_findings import worst

    found = _findings(bootstrap_server, data, timeout_ms)
    severity = worst(found)
    if as_json:
        print_json(
            {
                "severity": severity.name.lower(),
                "findings": [
                    {"severity": one.severity.name.lower(), "text": one.text} for one in found
                ],
            }
        )
        return severity
    for one in found:
        echo(f"{one.severity.name.lower()}: {one.text}")
    if not found:
        echo("fine: nothing needs attention")
    return severity


def _findings(
    bootstrap_server: str | None, data: Path | None, timeout_ms: int
) -> "Sequence[Finding]":
    from quorate.cli.cluster.broker_disks import broker_disks
    from quorate.cli.cluster.cluster_findings import Finding, Severity, findings
    from quorate.client.bootstrap import BootstrapError
    from quorate.client.errors import QuorateError
    from quorate.cluster.local_cluster_errors import LocalClusterError

    try:
        with open_admin(bootstrap_server, data, timeout_ms) as admin:
            status = replace(admin.cluster_status(), alerts=tuple(admin.cluster_alerts()))
            return findings(status, broker_disks(admin.metrics()))
    except (QuorateError, BootstrapError, LocalClusterError) as error:
        return [Finding(Severity.CRITICAL, f"the cluster does not answer: {error}")]
