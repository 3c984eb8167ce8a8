"""Every figure there is: named by the rules, declared once, and in the document."""

import json
import re
from pathlib import Path

import pytest

from quorate.broker.controller import event_metrics
from quorate.broker.coordinator.share.dead_letters import dead_letter_figures as dead_letters
from quorate.broker.kafka.records import fetch_session_cache as fetch_sessions
from quorate.broker.kafka.share import share_sessions
from quorate.broker.metrics import client_metrics as clients
from quorate.broker.metrics import cluster_metrics as cluster
from quorate.broker.metrics import compaction_metrics as compaction
from quorate.broker.metrics import group_metrics as groups
from quorate.broker.metrics import replica_metrics as replicas
from quorate.broker.metrics import transaction_metrics as transactions
from quorate.broker.quota import controller_mutation_quotas as controller_mutations
from quorate.broker.quota import quota_totals
from quorate.broker.telemetry import client_telemetry, pushed_figures
from quorate.common.metrics.family import Family, MetricKind
from quorate.quorum.voter import voter_status as voter
from quorate.tables.service import table_metrics

MODULES = (
    clients,
    cluster,
    compaction,
    groups,
    transactions,
    replicas,
    fetch_sessions,
    share_sessions,
    controller_mutations,
    dead_letters,
    quota_totals,
    event_metrics,
    voter,
    client_telemetry,
    pushed_figures,
)
FAMILIES = [
    value for module in MODULES for value in vars(module).values() if isinstance(value, Family)
]
OF_TABLES = [value for value in vars(table_metrics).values() if isinstance(value, Family)]
"""Those of the table service, which is neither a broker nor a voter: Kafka has nothing like it."""
ROOT = Path(__file__).parents[3]
DOCUMENT = ROOT / "docs" / "METRICS.md"
DASHBOARD = ROOT / "deploy" / "grafana" / "quorate.json"


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: str(family.name))
def test_names_follow_the_rules(family: Family) -> None:
    assert re.fullmatch(r"quorate_[a-z][a-z_]*", family.name)
    assert family.name.endswith("_total") == (family.kind is MetricKind.COUNTER)
    assert family.name.endswith("_seconds") or family.kind is not MetricKind.HISTOGRAM
    assert family.doc.endswith(".")


def test_each_is_declared_once() -> None:
    names = [family.name for family in FAMILIES]
    assert len(set(names)) == len(names)
    in_kafka = [(family.group, family.kafka_name) for family in FAMILIES]
    assert len(set(in_kafka)) == len(in_kafka)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: str(family.name))
def test_the_document_has_it(family: Family) -> None:
    assert row(family) in DOCUMENT.read_text(encoding="utf-8").splitlines()


def test_the_document_has_nothing_else() -> None:
    named = re.findall(r"^\| `(quorate_\w+)", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(named) == sorted(family.name for family in (*FAMILIES, *OF_TABLES))


def row(family: Family) -> str:
    """A family's line in docs/METRICS.md."""
    labels = f"{{{', '.join(family.labels)}}}" if family.labels else ""
    in_kafka = f"{family.group} {family.kafka_name}"
    return f"| `{family.name}{labels}` | {family.kind} | {in_kafka} | {family.doc} |"


def test_the_dashboard_asks_for_figures_that_there_are() -> None:
    panels = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    asked = {
        name
        for panel in panels
        for target in panel["targets"]
        for name in re.findall(r"quorate_\w+", target["expr"])
    }
    there = {name for family in FAMILIES for name in series(family)}
    assert len(asked) > 15
    assert asked <= there


def series(family: Family) -> list[str]:
    """What Prometheus stores of it."""
    if family.kind is MetricKind.HISTOGRAM:
        return [f"{family.name}_{suffix}" for suffix in ("bucket", "count", "sum")]
    return [family.name]
