"""``quorate top``: rates between two looks."""

import pytest

from quorate.cli.sizes import size
from quorate.cli.top.measurements import Look
from quorate.cli.top.top_groups import GroupSnapshot
from quorate.cli.top.top_share_groups import ShareGroupSnapshot
from quorate.cli.top.top_view import as_document, broker_rates, lines, topic_rates
from quorate.client.results import ClusterStatus, Metric
from quorate_proto.v1 import admin_pb2

ORDERS = {"topic": "orders"}
PRODUCE = {"request": "produce"}


def status(*broker_ids: int) -> ClusterStatus:
    response = admin_pb2.ClusterStatusResponse(controller_id=1, quorum_leader=2, topics=2)
    for broker_id in broker_ids:
        response.brokers.add(broker_id=broker_id)
    return ClusterStatus.from_proto(response)


def look(at_s: float, *figures: tuple[int, str, dict[str, str], float]) -> Look:
    return Look.of(
        at_s,
        [Metric(broker_id, "group", name, tags, value) for broker_id, name, tags, value in figures],
    )


BEFORE = look(
    10.0,
    (1, "BytesInPerSec", ORDERS, 1_000),
    (1, "BytesOutPerSec", ORDERS, 0),
    (2, "BytesInPerSec", ORDERS, 5_000),
    (1, "TotalTimeMs.Count", PRODUCE, 10),
    (1, "TotalTimeMs.Mean", PRODUCE, 0.1),
)
AFTER = look(
    12.0,
    (1, "BytesInPerSec", ORDERS, 5_000),
    (1, "BytesInPerSec", {"topic": "bills"}, 20_000),
    (1, "BytesOutPerSec", ORDERS, 0),
    (1, "BytesOutPerSec", {"topic": "idle"}, 0),
    (2, "BytesInPerSec", ORDERS, 600),
    (1, "TotalTimeMs.Count", PRODUCE, 30),
    (1, "TotalTimeMs.Count", {"request": "fetch"}, 4),
    (1, "TotalTimeMs.Mean", PRODUCE, 0.035),
    (1, "LeaderCount", {}, 7),
)


def test_rates_are_of_the_time_between_two_looks() -> None:
    first, second = broker_rates(status(1, 2), BEFORE, AFTER)
    assert first.bytes_in == (4_000 + 20_000) / 2
    assert first.requests == (20 + 4) / 2
    assert first.produce_ms == pytest.approx(2.5)
    assert first.leaders == 7
    assert second.id == 2
    assert second.leaders == 0


def test_without_a_produce_between_two_looks_there_is_no_mean_time() -> None:
    assert broker_rates(status(1), AFTER, AFTER)[0].produce_ms == 0.0


def test_a_restarted_broker_begins_anew_and_has_no_negative_rate() -> None:
    assert broker_rates(status(2), BEFORE, AFTER)[0].bytes_in == 300


def test_the_busiest_topics_come_first_over_all_brokers_and_idle_ones_not_at_all() -> None:
    found = topic_rates(BEFORE, AFTER, 5)
    assert [(one.topic, one.bytes_in) for one in found] == [("bills", 10_000), ("orders", 2_300)]
    assert [one.topic for one in topic_rates(BEFORE, AFTER, 1)] == ["bills"]


def test_what_people_and_scripts_see() -> None:
    seen = status(1, 2)
    brokers, topics = broker_rates(seen, BEFORE, AFTER), topic_rates(BEFORE, AFTER, 5)
    shown = lines(seen, brokers, topics, [], [], GroupSnapshot(0.0), ShareGroupSnapshot({}))
    assert shown[0].startswith("controller broker 1 (epoch 0)   quorum leader voter 2")
    assert any(line.startswith("bills") and "10.0 kB/s" in line for line in shown)
    document = as_document(seen, brokers, topics, [], [])
    assert document["brokers"][0]["bytes_in"] == 12_000
    assert document["topics"][0]["topic"] == "bills"


def test_sizes_are_short() -> None:
    assert [size(n) for n in (0, 999, 1_000, 12_345_678, 5e15)] == [
        "0 B", "999 B", "1.0 kB", "12.3 MB", "5000.0 TB",
    ]  # fmt: skip
