"""The bench of clients: what Java's tools print, when a system is warm, spreads, and its rows."""

import struct
from collections.abc import Callable

import pytest

from bench.client_loads.bare_fetch import fetch_request, offset_after, parse_fetched
from bench.client_loads.few_records import PacedProducer
from bench.client_loads.java_tools import end_to_end, steady_state
from bench.client_loads.settling import Round, is_warm, medians_and_spreads
from bench.clients import all_turns, picked
from bench.peers.kafka import KafkaInstallation
from tests.support.raw_client import record_batch

JAVA = KafkaInstallation("java", "libs/*", "4.3.1")
PRODUCER_PERFORMANCE = """\
Warmup first 40000 records. Steady state results will print after the complete test summary.
200000 records sent, 55355.660116 records/sec (52.79 MB/sec), 194.38 ms avg latency, \
373.00 ms max latency, 186 ms 50th, 301 ms 95th, 322 ms 99th, 348 ms 99.9th.
160000 steady state records sent, 62475.595471 records/sec (59.58 MB/sec), 207.23 ms avg latency, \
358.00 ms max latency, 195 ms 50th, 304 ms 95th, 325 ms 99th, 349 ms 99.9th.
"""
END_TO_END_LATENCY = """\
0\t126.550859
1000\t2.4177820000000003
Avg latency: 4.7811 ms
Percentiles: 50th = 3, 99th = 22, 99.9th = 126
"""


def test_the_producer_tool_is_read_without_its_warm_up_and_in_decimal_megabytes() -> None:
    figures = steady_state(PRODUCER_PERFORMANCE, records=160_000, record_bytes=1_000)
    assert figures == pytest.approx(
        {"MB/s": 62.475595, "records/s": 62475.595471, "p50 ms": 195, "p99 ms": 325}
    )


def test_a_record_that_the_producer_tool_lost_fails_the_measurement() -> None:
    with pytest.raises(RuntimeError, match="160000 of 160001 records are acknowledged"):
        steady_state(PRODUCER_PERFORMANCE, records=160_001, record_bytes=1_000)


def test_the_latency_tool_is_read() -> None:
    figures = end_to_end(END_TO_END_LATENCY)
    assert figures == {"p50 ms": 3.0, "p99 ms": 22.0, "mean ms": 4.7811}


def test_a_tool_without_a_result_fails_the_measurement() -> None:
    with pytest.raises(RuntimeError, match="printed no result: Exception"):
        end_to_end("Exception")


def test_a_system_is_warm_after_enough_data_and_two_rounds_of_one_cost() -> None:
    assert not is_warm([], 0.0)
    assert not is_warm([Round(9.0, 20.0)], 5.0)
    assert not is_warm([Round(2.4, 20.0), Round(2.4, 20.0)], 5.0)
    assert is_warm([Round(2.5, 20.0), Round(2.5, 21.0)], 5.0)
    assert is_warm([Round(2.5, 21.0), Round(2.5, 20.0)], 5.0)
    assert not is_warm([Round(2.5, 20.0), Round(2.5, 21.1)], 5.0)
    assert not is_warm([Round(2.5, 20.0), Round(2.5, 20.0), Round(2.5, 10.0)], 5.0)


def test_medians_stand_beside_their_ranges() -> None:
    samples = [{"MB/s": 31.26, "p99 ms": 2_000.4}, {"MB/s": 29.0, "p99 ms": 90.0}]
    samples.append({"MB/s": 35.0, "p99 ms": 100.0})
    assert medians_and_spreads(samples) == {
        "MB/s": 31.26,
        "MB/s range": "29 to 35",
        "p99 ms": 100.0,
        "p99 ms range": "90 to 2,000",
    }
    assert medians_and_spreads(samples[:1]) == samples[0]


@pytest.mark.parametrize("quick", [True, False])
def test_every_row_has_a_name_of_its_own_and_every_system_has_all_rows(quick: bool) -> None:
    turns = all_turns(JAVA, quick=quick)
    assert [turn.system for turn in turns] == [
        "Quorate os",
        "Quorate sync",
        "Quorate normal os",
        "Kafka 4.3.1",
        "Kafka 4.3.1 batch",
    ]
    names = [turn.row_name(load) for turn in turns for load in turn.loads]
    assert len(set(names)) == len(names) == 5 * len(turns[0].loads)


def test_without_kafkas_jars_quorate_is_measured_alone_and_without_java() -> None:
    turns = all_turns(None, quick=True)
    assert {turn.system for turn in turns} == {"Quorate os", "Quorate sync", "Quorate normal os"}
    assert not [load for turn in turns for load in turn.loads if "java" in load.name]


def test_rows_are_picked_by_system_and_client() -> None:
    turns = all_turns(JAVA, quick=True)
    assert picked(turns, None) == [turn for turn in turns if turn.system != "Quorate normal os"]
    assert [turn.system for turn in picked(turns, "quorate-normal")] == ["Quorate normal os"]
    assert [turn.system for turn in picked(turns, "quorate-os")] == ["Quorate os"]
    assert [turn.system for turn in picked(turns, "kafka")] == ["Kafka 4.3.1", "Kafka 4.3.1 batch"]
    assert len(picked(turns, "*-bare-fetch-1p")) == 5
    (only,) = picked(turns, "quorate-sync-java-1000b")
    assert (only.system, [load.name for load in only.loads]) == (
        "Quorate sync",
        ["java-1000b-64kib"],
    )
    with pytest.raises(ValueError, match=r"no row matches 'etcd'(.|\n)*kafka-4.3.1-bare-fetch-1p"):
        picked(turns, "etcd")


def test_a_fetch_of_several_partitions_is_asked_and_read() -> None:
    request = fetch_request("events", {0: 5, 3: 7})
    assert struct.unpack_from(">i", request) == (len(request) - 4,)
    assert request.endswith(
        struct.pack(">iiqi", 2, 0, 5, 1 << 20) + struct.pack(">iqi", 3, 7, 1 << 20)
    )

    batches = bytes(record_batch(b"a", b"b"))
    answer = struct.pack(">iih6si", 0, 1, 6, b"events", 2)
    answer += struct.pack(">ihqqiqqi", 0, 0, 9, 9, 1, 4, 5, len(batches)) + batches
    answer += struct.pack(">ihqqii", 3, 6, -1, -1, -1, -1)
    found = [
        (number, error, bytes(read)) for number, error, read in parse_fetched(memoryview(answer))
    ]
    assert found == [(0, 0, batches), (3, 6, b"")]


def test_what_follows_a_fetch_is_behind_its_last_complete_batch() -> None:
    first, second = record_batch(b"a", b"b"), record_batch(b"c")
    first[:8], second[:8] = struct.pack(">q", 10), struct.pack(">q", 12)
    both = bytes(first + second)
    assert offset_after(memoryview(both), 10) == 13
    assert offset_after(memoryview(both[:-1]), 10) == 12
    assert offset_after(memoryview(both[: len(first) - 1]), 10) == 10
    assert offset_after(memoryview(b""), 10) == 10


class StalledProducer:
    """A producer whose broker answers nothing until a time, and then at once; owns the clock."""

    def __init__(self, answers_from: float, error: str | None = None) -> None:
        self.now = 0.0
        self._answers_from = answers_from
        self._error = error
        self._callbacks: list[Callable[[object, object], None]] = []

    def produce(
        self, _topic: str, _value: bytes, on_delivery: Callable[[object, object], None]
    ) -> None:
        self._callbacks.append(on_delivery)

    def poll(self, seconds: float) -> None:
        self.now += seconds
        if self.now >= self._answers_from:
            answered, self._callbacks = self._callbacks, []
            for callback in answered:
                callback(self._error, None)


def test_the_latency_of_a_paced_record_counts_from_when_it_was_due(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    producer = StalledProducer(answers_from=0.3)
    monkeypatch.setattr("bench.client_loads.few_records.time.perf_counter", lambda: producer.now)
    sent = PacedProducer(producer, "events", b"x").send(start=0.0, interval_s=0.1, count=4)  # type: ignore[arg-type]
    assert sent == pytest.approx([300, 200, 100, 1], abs=0.1)


def test_a_refused_paced_record_fails_the_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    producer = StalledProducer(answers_from=0.0, error="refused")
    monkeypatch.setattr("bench.client_loads.few_records.time.perf_counter", lambda: producer.now)
    with pytest.raises(RuntimeError, match="0 records are not acknowledged; refused"):
        PacedProducer(producer, "events", b"x").send(start=0.0, interval_s=0.1, count=1)  # type: ignore[arg-type]
