"""The produce benchmark's rows, what it finds of Kafka, and what counts as ahead."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench._kafka_producers import Producers, Stream
from bench.peers.kafka import find_kafka
from bench.produce_consume import is_ahead, is_settled
from bench.produce_matrix.workload import QUICK_ROWS, ROWS, Workload

KAFKA_MESSAGE_MAX_BYTES = 1_048_588


def test_every_row_has_a_name_of_its_own_and_quick_ones_are_among_them() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)
    assert set(QUICK_ROWS) <= set(ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_batch_nearly_fills_its_size_and_fits_a_broker_with_defaults(row: Workload) -> None:
    record_bytes = row.record_bytes + 11  # lengths, attributes, deltas, no key, no headers
    size = 61 + row.records_per_batch * record_bytes
    assert 0.9 * row.batch_bytes < size <= min(row.batch_bytes, KAFKA_MESSAGE_MAX_BYTES)


def test_less_is_better_for_costs_and_times() -> None:
    assert is_ahead("MB/s", 2.0, 1.0)
    assert not is_ahead("MB/s", 1.0, 2.0)
    assert is_ahead("servers CPU s/GB", 1.0, 2.0)
    assert not is_ahead("servers CPU s/GB", 2.0, 1.0)
    assert is_ahead("p99 ms, half load", 1.0, 2.0)
    assert not is_ahead("PSS MB", 2.0, 1.0)


def test_a_system_is_warm_when_two_rounds_got_no_cheaper() -> None:
    assert not is_settled([])
    assert not is_settled([100.0, 100.0])
    assert is_settled([100.0, 95.0, 130.0])
    assert not is_settled([100.0, 120.0, 80.0])
    assert not is_settled([100.0, 50.0, 30.0, 20.0])


def test_the_version_of_kafka_is_told_by_its_jars(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KAFKA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "java").touch(mode=0o755)
    (tmp_path / "libs").mkdir()
    (tmp_path / "libs" / "kafka_2.13-4.1.0.jar").touch()
    assert find_kafka().version == "4.1.0"


class StalledBroker:
    """A producer whose broker answers nothing until a time, and then at once; owns the clock."""

    now = 0.0
    answers_from = 0.0
    refuses = False

    def __init__(self, _settings: object) -> None:
        self._callbacks: list[Callable[[object, object], None]] = []

    def produce_batch(self, _topic: str, messages: list[dict[str, Any]], partition: int) -> None:
        self._callbacks.append(messages[-1]["callback"])

    def poll(self, seconds: float) -> None:
        waits_s = max(0.0, StalledBroker.answers_from - StalledBroker.now)
        if not self._callbacks or waits_s > seconds:
            StalledBroker.now += seconds + 1e-6
        else:
            StalledBroker.now += waits_s + 1e-6
            answered, self._callbacks = self._callbacks, []
            for callback in answered:
                callback("refused" if StalledBroker.refuses else None, None)


@pytest.fixture
def producers(monkeypatch: pytest.MonkeyPatch) -> Producers:
    monkeypatch.setattr("confluent_kafka.Producer", StalledBroker)
    monkeypatch.setattr("bench._kafka_producers.time.perf_counter", lambda: StalledBroker.now)
    monkeypatch.setattr(StalledBroker, "now", 100.0)
    monkeypatch.setattr(StalledBroker, "answers_from", 100.5)
    monkeypatch.setattr(StalledBroker, "refuses", False)
    return Producers(Stream("", "t", 3, "all", records_per_batch=2, record_bytes=10), 1)


def test_what_waits_for_a_stalled_broker_is_slow_although_it_was_not_sent(
    producers: Producers,
) -> None:
    sent = producers.send(seconds=1.0, in_flight=1, batches_per_s=100.0)
    assert sent.batches == len(sent.latencies_ms) == 100
    due_while_stalled = sorted(sent.latencies_ms, reverse=True)[:50]
    assert due_while_stalled == pytest.approx([500 - 10 * n for n in range(50)], abs=1)
    assert sum(latency > 1 for latency in sent.latencies_ms) <= 51


def test_at_full_speed_no_more_is_open_than_allowed(producers: Producers) -> None:
    sent = producers.send(seconds=0.6, in_flight=5)
    first = [latency for latency in sent.latencies_ms if latency > 400]
    assert len(first) == 5


def test_a_refused_batch_fails_the_measurement(producers: Producers) -> None:
    StalledBroker.refuses = True
    with pytest.raises(RuntimeError, match="refused"):
        producers.send(seconds=0.6, in_flight=5)
