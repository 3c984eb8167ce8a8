"""Figures as Prometheus reads them, read back with its own parser."""

from prometheus_client.parser import text_string_to_metric_families

from quorate.common.metrics.family import BUCKETS_S, Family, MetricKind, Metrics, Sample, Timings
from quorate.common.metrics.metrics_endpoint import exposition

GAUGE = Family("quorate_size_bytes", MetricKind.GAUGE, "Log", "Size", "How large.", ("topic",))
COUNTER = Family("quorate_done_total", MetricKind.COUNTER, "Log", "Done", "How often.")
TIMES = Family(
    "quorate_wait_seconds", MetricKind.HISTOGRAM, "Log", "Wait", "How long.", ("request",)
)


def read_back(*samples: Sample) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    text = exposition(samples).decode()
    return {
        (one.name, tuple(sorted(one.labels.items()))): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }


def test_labels_are_told_apart_whatever_is_in_them() -> None:
    found = read_back(Sample(GAUGE, 1, ("a",)), Sample(GAUGE, 2.5, ('b"\n\\',)))
    assert found["quorate_size_bytes", (("topic", "a"),)] == 1
    assert found["quorate_size_bytes", (("topic", 'b"\n\\'),)] == 2.5


def test_a_counter_keeps_its_name_and_the_process_shows_its_own() -> None:
    found = read_back(Sample(COUNTER, 7))
    assert found["quorate_done_total", ()] == 7
    assert found["process_resident_memory_bytes", ()] > 0


def test_a_distribution_counts_at_or_below_each_bound() -> None:
    timings = Timings()
    for seconds in (BUCKETS_S[0], 0.002, 0.002, BUCKETS_S[-1] + 1):
        timings.observe(seconds)
    found = read_back(Sample(TIMES, timings.distribution, ("Fetch",)))
    at_most = {
        labels[0][1]: value
        for (name, labels), value in found.items()
        if name == "quorate_wait_seconds_bucket"
    }
    assert at_most["0.0005"] == 1
    assert at_most["0.001"] == 1
    assert at_most["0.0025"] == 3
    assert at_most["10"] == 3
    assert at_most["+Inf"] == 4
    labels = (("request", "Fetch"),)
    assert found["quorate_wait_seconds_count", labels] == 4
    assert found["quorate_wait_seconds_sum", labels] == BUCKETS_S[0] + 0.004 + BUCKETS_S[-1] + 1


async def test_sources_are_asked_when_somebody_looks() -> None:
    value = 1
    metrics = Metrics()
    metrics.add(lambda: [Sample(COUNTER, value)])
    assert [sample.value for sample in await metrics.gathered()] == [1]
    value = 2
    assert [sample.value for sample in await metrics.gathered()] == [2]
