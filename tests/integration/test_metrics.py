"""The figures of real processes, scraped as Prometheus does, agree with what happened to them."""

import json
import urllib.request
from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from quorate.client.results import NewTopic
from quorate.testing import RunningCluster, running_cluster
from tests.support.acked_load import acked_load
from tests.support.cli import quorate_json
from tests.support.waiting import wait_until
from tests.support.whole_cluster import wait_until_known

pytestmark = pytest.mark.integration

Figures = dict[tuple[str, str], list[tuple[dict[str, str], float]]]
"""(node, figure) → its values by label."""


@pytest.fixture
def cluster() -> Iterator[RunningCluster]:
    with running_cluster(brokers=3, voters=3) as cluster:
        yield cluster


def scrape(cluster: RunningCluster) -> Figures:
    """All nodes, found as Prometheus finds them; those that do not answer are left out."""
    found: Figures = {}
    for group in json.loads((cluster.folder / "prometheus.json").read_text()):
        node = f"{group['labels']['kind']}-{group['labels']['id']}"
        try:
            with urllib.request.urlopen(
                f"http://{group['targets'][0]}/metrics", timeout=10
            ) as page:
                text = page.read().decode()
        except OSError:
            continue
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                found.setdefault((node, sample.name), []).append((sample.labels, sample.value))
    return found


def total(figures: Figures, name: str) -> float:
    return sum(value for (_, one), values in figures.items() if one == name for _, value in values)


def test_figures_follow_what_happens(cluster: RunningCluster) -> None:
    with cluster.admin() as admin:
        new = NewTopic(name="load", num_partitions=3, replication_factor=3)
        admin.create_topics([new])[0].raise_for_error()
    wait_until_known(cluster, "load", 3)
    with acked_load(cluster.bootstrap, "load", 3) as load:
        load.wait_for_more(30)
        seen = quorate_json(
            "top", "--data", str(cluster.folder), "--count", "1", "--interval", "0.5"
        )
    assert sum(broker["leaders"] for broker in seen["brokers"]) == 3
    assert [topic["topic"] for topic in seen["topics"]] == ["load"]
    assert seen["topics"][0]["records_in"] > 0
    before = scrape(cluster)
    assert total(before, "quorate_active_controller") == 1
    assert total(before, "quorate_quorum_leader") == 1
    assert total(before, "quorate_under_replicated_partitions") == 0
    assert total(before, "quorate_records_in_total") >= len(load.acknowledged.offsets)
    assert total(before, "quorate_replication_bytes_in_total") > 0
    assert total(before, "quorate_log_commit_seconds_count") > 0
    assert total(before, "quorate_request_seconds_count") > 0
    assert before["quorum-1", "process_resident_memory_bytes"][0][1] > 10e6
    victim = next(broker for broker in (1, 2, 3) if broker != cluster.controller_id())
    cluster.kill_broker(victim)
    wait_until(
        lambda: total(scrape(cluster), "quorate_under_replicated_partitions") == 3,
        "the survivors to show their partitions as under-replicated",
    )
    after = scrape(cluster)
    assert total(after, "quorate_brokers") == 2
    assert total(after, "quorate_offline_partitions") == 0
