"""Measures the CPU that the validation of produced records costs, beside brokers without it.

First the validation alone, in this process: CPU time of the best of many rounds, which others on
the machine disturb least. Then two clusters of three brokers, which run side by side and are
measured in turn, by an unmodified librdkafka. With one replica the cost is compared with the least
that a broker does with a batch. With three replicas and acks=all it shows whether the throughput of
many partitions suffers.
"""

import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from bench._kafka_load import in_own_process
from bench._kafka_producers import Producers, Stream, sample_values
from bench._nodes import pids
from bench._support import Bench, median_row
from bench.peers.processes import cpu_seconds
from bench.without_validation import without_validation
from quorate.broker.log.batches.admission import AppendOrigin, produced_batches
from quorate.broker.log.batches.log_validator import IN_A_THREAD, LogValidator
from quorate.broker.log.batches.topic_timestamps import TopicStorageOptions
from quorate.client.results import NewTopic
from quorate.common.types import TopicPartition
from quorate.testing import RunningCluster, running_cluster
from tests.support.record_batches import Record, encode_batch

BROKERS: Final = 3
PRODUCERS: Final = 2
IN_FLIGHT: Final = 32
BATCH_BYTES: Final = 64 << 10
_OVERHEAD_BYTES: Final = 12
_HEADER_BYTES: Final = 61
_SETTLE_S: Final = 2.0
CODECS: Final = ("none", "lz4", "snappy", "zstd", "gzip")
_BATCHES: Final = 40
"""More bytes than the caches next to a processor hold."""
_WHERE: Final = TopicPartition("bench", 0)
_STORING: Final = TopicStorageOptions(after_max_ms=3_600_000)
WITH: Final = "with"
WITHOUT: Final = "without"


@dataclass(frozen=True)
class Load:
    """Batches of 64 KiB before compression."""

    codec: str
    record_bytes: int
    replicas: int
    partitions: int

    @property
    def records_per_batch(self) -> int:
        return (BATCH_BYTES - _HEADER_BYTES) // (self.record_bytes + _OVERHEAD_BYTES)

    def stream(self, bootstrap: str, topic: str) -> Stream:
        return Stream(
            bootstrap=bootstrap,
            topic=topic,
            partitions=self.partitions,
            acks="1" if self.replicas == 1 else "all",
            records_per_batch=self.records_per_batch,
            record_bytes=self.record_bytes,
            codec=self.codec,
        )


def loads(quick: bool) -> list[Load]:
    codecs = CODECS[:2] if quick else CODECS
    found = [Load(codec, size, 1, 12) for size in (1_000, 100) for codec in codecs]
    return found + [Load(codec, 1_000, BROKERS, 100) for codec in codecs[:2]]


@dataclass
class _Log:
    max_batch_bytes: int = 8 << 20
    needs_keys: bool = False
    storing: TopicStorageOptions = _STORING


def alone(load: Load, rounds: int) -> dict[str, float]:
    """CPU time of one batch, whose headers alone are looked at, or each of whose records is."""
    now_ms = int(time.time() * 1000)
    values = sample_values(load.records_per_batch, load.record_bytes)
    records = [Record(place, now_ms, value=value) for place, value in enumerate(values)]
    batch = encode_batch(records, codec=load.codec)
    batches = [memoryview(bytearray(batch)) for _ in range(_BATCHES)]
    validator = LogValidator.at_once() if load.codec == "none" else LogValidator(IN_A_THREAD)
    log, client = _Log(), AppendOrigin.CLIENT

    def without() -> None:
        for each in batches:
            produced_batches(each, log.max_batch_bytes, _WHERE, client)

    def validated() -> None:
        for each in batches:
            validator.validate(each, log, client, now_ms, _WHERE)

    best = dict.fromkeys((WITHOUT, WITH), float("inf"))
    for _ in range(rounds):
        for system, work in ((WITHOUT, without), (WITH, validated)):
            begin = time.thread_time()
            work()
            best[system] = min(best[system], (time.thread_time() - begin) / _BATCHES)
    size = load.records_per_batch * load.record_bytes
    return {
        f"batch us {WITHOUT}": best[WITHOUT] * 1e6,
        f"batch us {WITH}": best[WITH] * 1e6,
        "CPU s/GB more": (best[WITH] - best[WITHOUT]) / size * 1e9,
    }


@contextmanager
def topic_for(load: Load, name: str, cluster: RunningCluster) -> Iterator[None]:
    with cluster.admin() as admin:
        new = NewTopic(name=name, num_partitions=load.partitions, replication_factor=load.replicas)
        admin.create_topics([new])[0].raise_for_error()
        time.sleep(_SETTLE_S)
        yield
        admin.delete_topics([name])


def measure(stream: Stream, brokers: Sequence[int], seconds: float) -> dict[str, float]:
    """Produce at full speed, after a start that does not count."""
    producers = Producers(stream, PRODUCERS)
    producers.touch()
    producers.send(seconds=seconds / 4, in_flight=IN_FLIGHT)
    before = cpu_seconds(brokers)
    sent = producers.send(seconds=seconds, in_flight=IN_FLIGHT)
    spent_s = cpu_seconds(brokers) - before
    size = sent.batches * stream.payload_bytes
    return {"CPU s/GB": spent_s / size * 1e9, "MB/s": size / 1e6 / sent.elapsed_s}


def measure_turn(
    load: Load, turn: int, name: str, clusters: dict[str, RunningCluster], seconds: float
) -> dict[str, dict[str, float]]:
    """Measure both. Who goes first changes from turn to turn."""
    found = {}
    order = list(clusters.items())
    for system, cluster in reversed(order) if turn % 2 else order:
        with topic_for(load, name, cluster):
            stream = load.stream(cluster.bootstrap, name)
            brokers = pids(cluster)["broker"]
            found[system] = in_own_process(measure, stream, brokers, seconds)
    return found


def measure_load(
    bench: Bench, number: int, load: Load, clusters: dict[str, RunningCluster]
) -> None:
    seconds = bench.pick(full=3.0, quick=1.0)
    samples = [
        measure_turn(load, turn, f"load-{number}-{turn}", clusters, seconds)
        for turn in range(bench.repetitions)
    ]
    figures: dict[str, float] = {}
    for system in (WITHOUT, WITH):
        medians = median_row([sample[system] for sample in samples])
        figures |= {f"{name} {system}": value for name, value in medians.items()}
    for name in ("CPU s/GB", "MB/s"):
        ratios = [sample[WITH][name] / sample[WITHOUT][name] for sample in samples]
        figures[f"{name} more %"] = 100 * (statistics.median(ratios) - 1)
    case: dict[str, int | str] = {
        "codec": load.codec,
        "record": f"{load.record_bytes} B",
        "RF": load.replicas,
        "partitions": load.partitions,
    }
    bench.row(case, figures)


def main(arguments: Sequence[str] | None = None) -> None:
    bench = Bench.from_command_line(
        "Record validation",
        "batches of 64 KiB; CPU of all brokers per GB of values",
        arguments,
    )
    rounds = bench.pick(full=200, quick=50)
    for load in loads(bench.quick):
        if load.replicas == 1:
            bench.row(
                {"codec": load.codec, "record": f"{load.record_bytes} B"}, alone(load, rounds)
            )
    settings = {"log.flush": "os"}
    with running_cluster(brokers=BROKERS, config=settings) as validating:
        with without_validation():
            other = running_cluster(brokers=BROKERS, config=settings)
            bare = other.__enter__()
        try:
            clusters = {WITHOUT: bare, WITH: validating}
            for number, load in enumerate(loads(bench.quick)):
                measure_load(bench, number, load, clusters)
        finally:
            other.__exit__(None, None, None)
    bench.finish()


if __name__ == "__main__":
    main()
