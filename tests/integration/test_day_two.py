"""What an operator looks at, asked of real processes: figures, alert rules, health, the check."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml
from confluent_kafka import Consumer, Producer
from google.protobuf.wrappers_pb2 import StringValue, UInt32Value
from prometheus_client.parser import text_string_to_metric_families

from quorate.broker.rpc.health_service import SERVICE, SERVING
from quorate.cli.top.top_view import PRODUCE_TAGS, REQUEST_TIMES
from quorate.client.results import (
    ConfigChange,
    ConfigEntity,
    NewTopic,
    QuotaAlteration,
    QuotaEntity,
)
from quorate.testing import RunningCluster, running_cluster
from tests.support.cli import cluster_json, quorate, quorate_json
from tests.support.promql import what_is_missing
from tests.support.waiting import wait_until

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
DASHBOARD = ROOT / "deploy" / "grafana" / "quorate.json"
ALERTS = ROOT / "deploy" / "prometheus" / "alerts.yml"
OF_PROMETHEUS = {"job": "quorate", "instance": "host:1"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    """One broker and one voter, after a produce and a commit of a group."""
    with running_cluster(group_initial_rebalance_delay_ms=0) as cluster:
        with cluster.admin() as admin:
            admin.create_topics([NewTopic(name="orders")])[0].raise_for_error()
            quota = QuotaAlteration(QuotaEntity(user=""), {"producer_byte_rate": 1e9})
            admin.alter_client_quotas([quota])[0].raise_for_error()
        producer = Producer({"bootstrap.servers": cluster.bootstrap})
        producer.produce("orders", b"one")
        assert producer.flush(30) == 0
        consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": "day-two",
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe(["orders"])
        wait_until(lambda: consumer.poll(0.2) is not None, "a record")
        consumer.commit(asynchronous=False)
        consumer.close()
        yield cluster


def page(address: str, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.read().decode()


def metrics_addresses(cluster: RunningCluster) -> list[str]:
    state = cluster_json(cluster.folder)
    return [node["metrics"] for node in (*state["quorum"], *state["brokers"])]


def expressions() -> Iterator[tuple[str, str]]:
    """Each expression of the dashboard and of the alert rules, with where it is."""
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel["targets"]:
            yield f"panel {panel['title']}", target["expr"]
    for group in yaml.safe_load(ALERTS.read_text())["groups"]:
        for rule in group["rules"]:
            yield f"alert {rule['alert']}", rule["expr"]


def test_every_figure_and_label_that_is_asked_for_is_on_the_pages(cluster: RunningCluster) -> None:
    series: dict[str, list[dict[str, str]]] = {"up": [OF_PROMETHEUS]}
    for address in metrics_addresses(cluster):
        for family in text_string_to_metric_families(page(address, "/metrics")[1]):
            for sample in family.samples:
                series.setdefault(sample.name, []).append(dict(sample.labels) | OF_PROMETHEUS)
    asked = dict(expressions())
    assert len(asked) > 40
    missing = {where: what_is_missing(one, series) for where, one in asked.items()}
    assert {where: what for where, what in missing.items() if what} == {}


def test_top_asks_for_a_label_that_there_is(cluster: RunningCluster) -> None:
    with cluster.admin() as admin:
        there = {(one.name, tuple(one.tags.items())) for one in admin.metrics()}
    assert (f"{REQUEST_TIMES}.Count", PRODUCE_TAGS) in there
    assert (f"{REQUEST_TIMES}.Mean", PRODUCE_TAGS) in there


def test_levels_of_loggers_are_changed_while_a_broker_runs(cluster: RunningCluster) -> None:
    loggers = ("configs", "--entity-type", "broker-loggers", "--data", str(cluster.folder))
    name = ("--entity-name", "1")
    quorate(*loggers, *name, "--alter", "--add-config", "quorate.broker.kafka=DEBUG")
    shown = quorate(*loggers, "--describe", *name)
    assert "quorate.broker.kafka=DEBUG sensitive" in shown
    quorate(*loggers, *name, "--alter", "--delete-config", "quorate.broker.kafka")
    with cluster.admin() as admin:
        described = admin.describe_configs(
            [ConfigEntity("broker-logger", "1", ["quorate.broker.kafka"])]
        )
        assert [one.value for one in described[0].entries] == ["INFO"]
        change = ConfigChange("broker-logger", "7", {"root": "DEBUG"})
        assert "does not answer" in admin.incremental_alter_configs([change])[0].message


def grpc_health(cluster: RunningCluster, service: str = "") -> Any:  # noqa: ANN401 - a message
    with grpc.insecure_channel(cluster.broker_grpc_address(1)) as channel:
        check = channel.unary_unary(
            f"/{SERVICE}/Check", StringValue.SerializeToString, UInt32Value.FromString
        )
        return check(StringValue(value=service), timeout=10).value


def test_processes_say_that_they_are_healthy_and_ready(cluster: RunningCluster) -> None:
    for address in metrics_addresses(cluster):
        assert page(address, "/healthz") == (200, "ok\n")
        assert page(address, "/readyz") == (200, "ready\n")
        assert quorate("node", "ready", address) == "ready\n"
    assert grpc_health(cluster) == SERVING
    with pytest.raises(grpc.RpcError, match="unknown service 'other'"):
        grpc_health(cluster, "other")


def test_a_cluster_that_is_fine_has_nothing_to_check(cluster: RunningCluster) -> None:
    data = ("--data", str(cluster.folder))
    assert quorate("status", "--check", *data) == "fine: nothing needs attention\n"
    (disk,) = quorate_json("status", *data)["disks"]
    assert disk["broker_id"] == 1
    assert 0 < disk["free_bytes"] <= disk["total_bytes"]


@pytest.mark.slow
def test_a_voter_that_is_away_makes_its_broker_neither_unready_nor_silent() -> None:
    """It changes its cluster, so it has one of its own."""
    with running_cluster(voters=2, broker_session_timeout_ms=2_000) as cluster:
        state = cluster_json(cluster.folder)
        (broker,) = state["brokers"]
        follower = next(one for one in state["quorum"] if one["id"] != cluster.quorum_leader())
        cluster.kill_voter(cluster.quorum_leader())
        wait_until(
            lambda: (
                page(follower["metrics"], "/readyz") == (503, "not ready: it knows no leader\n")
            ),
            "the other voter to miss its leader",
        )
        assert page(broker["metrics"], "/readyz") == (200, "ready\n")
        checked = quorate("status", "--check", "--data", str(cluster.folder), code=2)
        assert "critical: the metadata quorum has no leader, or does not answer\n" in checked
        cluster.stop_voter(follower["id"])
