"""The alert rules, evaluated by Prometheus itself on the pages of a running cluster."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import yaml
from confluent_kafka import Producer

from quorate.client.results import NewTopic, QuotaAlteration, QuotaEntity
from quorate.testing import RunningCluster, running_cluster
from tests.support.prometheus import PROMETHEUS, PROMTOOL, WHY_NOT, Prometheus, scraping
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.skipif(PROMETHEUS is None, reason=WHY_NOT),
]

ALERTS: Final = Path(__file__).parents[2] / "deploy" / "prometheus" / "alerts.yml"
_COMPARISON: Final = re.compile(r"\s*(>|<|==|!=)\s*[\d.]+$")
OF_A_DEAD_BROKER: Final = {"QuorateNodeDown", "QuorateUnderReplicated"}
OF_THIS_MACHINE: Final = {"QuorateDiskFillsUp", "QuorateDiskFullIn4Hours"}
"""What others do on the disk of this machine decides whether these fire."""
DASHBOARD: Final = Path(__file__).parents[2] / "deploy" / "grafana" / "quorate.json"


def rules() -> dict[str, str]:
    groups = yaml.safe_load(ALERTS.read_text())["groups"]
    return {rule["alert"]: rule["expr"] for group in groups for rule in group["rules"]}


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    """Three brokers and three voters, after a produce, with a quota."""
    with running_cluster(brokers=3, voters=3, min_insync_replicas=2) as cluster:
        with cluster.admin() as admin:
            topic = NewTopic(name="orders", num_partitions=6, replication_factor=3)
            admin.create_topics([topic])[0].raise_for_error()
            quota = QuotaAlteration(QuotaEntity(user=""), {"producer_byte_rate": 1e9})
            admin.alter_client_quotas([quota])[0].raise_for_error()
        producer = Producer({"bootstrap.servers": cluster.bootstrap})
        for number in range(60):
            producer.produce("orders", b"one", partition=number % 6)
        assert producer.flush(30) == 0
        yield cluster


@pytest.fixture(scope="module")
def prometheus(
    cluster: RunningCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Prometheus]:
    with scraping(cluster, ALERTS, tmp_path_factory.mktemp("prometheus")) as server:
        yield server


def test_every_rule_is_evaluated_without_an_error(prometheus: Prometheus) -> None:
    wait_until(lambda: set(prometheus.rules().values()) == {"ok"}, "an evaluation of all rules")
    assert prometheus.rules().keys() == rules().keys()


def test_every_rule_compares_a_figure_that_there_is(prometheus: Prometheus) -> None:
    """An expression that finds nothing never fires, and looks like a healthy cluster."""
    figures = {name: _COMPARISON.sub("", one) for name, one in rules().items()}
    assert all(figures[name] != one for name, one in rules().items())
    assert {name for name, one in figures.items() if not prometheus.query(one)} == set()


def test_nothing_fires_while_all_is_well_and_a_dead_broker_does(
    cluster: RunningCluster, prometheus: Prometheus
) -> None:
    def firing() -> set[str]:
        asked = {name: one for name, one in rules().items() if name not in OF_THIS_MACHINE}
        return {name for name, one in asked.items() if prometheus.query(one)}

    wait_until(lambda: not firing(), "a cluster of which no rule says anything")
    cluster.kill_broker(3)
    wait_until(lambda: firing() >= OF_A_DEAD_BROKER, "the rules that a dead broker breaks")


def test_every_panel_of_the_dashboard_is_evaluated(prometheus: Prometheus) -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    asked = [target["expr"] for panel in panels for target in panel["targets"]]
    assert len(asked) > 10
    for expression in asked:
        prometheus.query(expression.replace("$__rate_interval", "1m"))


@pytest.mark.skipif(PROMTOOL is None, reason=WHY_NOT)
def test_promtool_finds_nothing_wrong() -> None:
    assert PROMTOOL is not None
    done = subprocess.run(
        [PROMTOOL, "check", "rules", str(ALERTS)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert f"{len(rules())} rules found" in done.stdout
