"""Unmodified clients push their metrics, and Prometheus finds them (KIP-714)."""

import json
import logging
import subprocess
import urllib.request
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from quorate.testing import RunningCluster, running_cluster
from tests.support.cli import quorate, quorate_json
from tests.support.kafka_jars import kafka_home
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.clients]


@pytest.fixture
def cluster() -> Iterator[RunningCluster]:
    with running_cluster() as cluster:
        yield cluster


def samples(cluster: RunningCluster) -> Iterator[Sample]:
    """What the brokers show."""
    for group in json.loads((cluster.folder / "prometheus.json").read_text()):
        if group["labels"]["kind"] == "broker":
            at = f"http://{group['targets'][0]}/metrics"
            with urllib.request.urlopen(at, timeout=10) as page:
                for family in text_string_to_metric_families(page.read().decode()):
                    yield from family.samples


def pushed(cluster: RunningCluster, client_id: str) -> dict[str, float]:
    """What the brokers show of a client: metric → the sum of its values."""
    found: dict[str, float] = {}
    for sample in samples(cluster):
        if sample.labels.get("client_id") == client_id and "metric" in sample.labels:
            metric = sample.labels["metric"]
            found[metric] = found.get(metric, 0) + sample.value
    return found


def subscribe(cluster: RunningCluster, *more: str) -> None:
    data = ("--data", str(cluster.folder))
    quorate("client-metrics", "alter", "--name", "all", "--metrics", "*", *more, *data)
    described = quorate_json("client-metrics", "describe", *data)
    assert [(one["name"], one["metrics"]) for one in described] == [("all", "*")]


def test_kip_714_librdkafka_pushes_its_metrics(cluster: RunningCluster) -> None:
    match = "client_software_name=confluent-kafka-python"
    subscribe(cluster, "--interval-ms", "500", "--match", match)
    producer = librdkafka(cluster, "seen")

    def is_shown() -> bool:
        producer.poll(0.1)
        return bool(pushed(cluster, "seen"))

    wait_until(is_shown, "the metrics of librdkafka")
    metrics = pushed(cluster, "seen")
    assert any(name.startswith("org.apache.kafka.producer.") for name in metrics), metrics
    data = ("--data", str(cluster.folder))
    quorate("client-metrics", "delete", "--name", "all", *data)
    assert quorate_json("client-metrics", "list", *data) == []


@pytest.mark.slow
def test_kip_714_without_a_subscription_librdkafka_asks_once_and_logs_nothing(
    cluster: RunningCluster, caplog: pytest.LogCaptureFixture
) -> None:
    producer = librdkafka(cluster, "unseen")

    def has_asked() -> bool:
        producer.poll(0.1)
        return bool(asked(cluster))

    wait_until(has_asked, "librdkafka to ask what it is to push")
    for _ in range(10):
        producer.poll(0.1)
    assert asked(cluster) == 1
    assert pushed(cluster, "unseen") == {}
    assert caplog.messages == []


def librdkafka(cluster: RunningCluster, client_id: str) -> Producer:
    return Producer(
        {"bootstrap.servers": cluster.bootstrap, "client.id": client_id},
        logger=logging.getLogger("librdkafka"),
    )


def asked(cluster: RunningCluster) -> float:
    """How often clients asked for their subscription."""
    return sum(
        sample.value
        for sample in samples(cluster)
        if sample.name == "quorate_request_seconds_count"
        and sample.labels["request"] == "get_telemetry_subscriptions"
    )


@pytest.mark.slow
def test_kip_714_the_producer_of_kafka_pushes_its_metrics(cluster: RunningCluster) -> None:
    subscribe(cluster, "--interval-ms", "1000")
    subprocess.run(
        [
            "java",
            "-cp",
            f"{kafka_home()}/libs/*",
            "org.apache.kafka.tools.ProducerPerformance",
            *("--topic", "t", "--num-records", "2000", "--record-size", "100"),
            *("--throughput", "500", "--producer-props"),
            f"bootstrap.servers={cluster.bootstrap}",
            "client.id=java-client",
        ],
        check=True,
        timeout=100,
        capture_output=True,
    )
    metrics = pushed(cluster, "java-client")
    assert "org.apache.kafka.producer.connection.creation.total" in metrics
    assert len(metrics) > 5
