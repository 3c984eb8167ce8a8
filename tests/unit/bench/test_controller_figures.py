"""What the bench of mutation quotas reads from the controller's page of metrics."""

import pytest

from bench._controller_figures import Reading, read_page, waits

PAGE = """
# TYPE quorate_controller_event_queue_seconds histogram
quorate_controller_event_queue_seconds_bucket{le="0.5",priority="admin"} 3.0
quorate_controller_event_queue_seconds_bucket{le="+Inf",priority="admin"} 3.0
quorate_controller_event_queue_seconds_count{priority="admin"} 3.0
quorate_controller_event_queue_seconds_sum{priority="admin"} 6.0
quorate_controller_events_queued 2.0
quorate_cluster_partitions 400.0
process_cpu_seconds_total 9.0
"""


def test_only_the_figures_of_the_event_queue_are_read() -> None:
    reading = read_page(PAGE)
    assert (reading.queued, reading.partitions) == (2, 400)
    assert reading.of("event_queue_seconds", "sum", "admin") == 6
    assert reading.buckets("event_queue_seconds", "admin") == {0.5: 3, float("inf"): 3}
    assert len(reading.figures) == 6


def of_queue(sums: dict[str, float], counts: list[float]) -> Reading:
    """A reading in which the admin events fell into these buckets."""
    figures: dict[str, float] = {}
    for name in ("event_queue_seconds", "event_seconds"):
        for priority, waited_s in sums.items():
            key = f"quorate_controller_{name}"
            figures[f'{key}_sum{{priority="{priority}"}}'] = waited_s
            for bound, count in zip(("0.1", "0.5", "+Inf"), counts, strict=True):
                figures[f'{key}_bucket{{le="{bound}",priority="{priority}"}}'] = count
    return Reading(figures)


def test_waits_are_those_between_two_readings() -> None:
    before = of_queue({"brokers": 1, "elections": 1, "admin": 4}, [1, 5, 7])
    after = of_queue({"brokers": 1, "elections": 3, "admin": 12}, [2, 9, 11])
    found = waits(before, after, elapsed_s=5)
    assert found["queued mean"] == pytest.approx(2), "10 s of waiting in 5 s"
    assert found["admin events waited at most ms"] == 500, "none was above it meanwhile"
    assert waits(before, before, elapsed_s=5)["elections waited at most ms"] == 0
