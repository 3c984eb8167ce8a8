"""One measurement of one system under one workload, in a process of its own: the client's."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from bench._kafka_load import consume
from bench._kafka_producers import Producers, Sent, Stream
from bench._support import percentile
from bench.peers.processes import cpu_seconds, memory, own_cpu_seconds
from bench.produce_matrix.workload import Workload

PRODUCERS: Final = 2
"""Kafka serves one request per connection at a time: with one producer it would wait, not work."""
_GB: Final = 1e9


class Durations(NamedTuple):
    """Seconds of each part."""

    warm_up: float
    full_speed: float
    half_load: float
    one_in_flight: float


def measure(
    bootstrap: str, topic: str, workload: Workload, pids: Sequence[int], durations: Durations
) -> dict[str, float]:
    """Produce at full speed, consume that, then produce at half the speed, then batch by batch."""
    stream = Stream(
        bootstrap=bootstrap,
        topic=topic,
        partitions=workload.partitions,
        acks=workload.acks,
        records_per_batch=workload.records_per_batch,
        record_bytes=workload.record_bytes,
        codec=workload.codec,
    )
    producers = Producers(stream, PRODUCERS)
    touched = producers.touch()
    warm = producers.send(seconds=durations.warm_up, in_flight=workload.batches_in_flight)
    servers, client = cpu_seconds(pids), own_cpu_seconds()
    full = producers.send(seconds=durations.full_speed, in_flight=workload.batches_in_flight)
    servers, client = cpu_seconds(pids) - servers, own_cpu_seconds() - client
    gigabytes = full.batches * workload.payload_bytes / _GB
    figures = {
        "MB/s": gigabytes * 1000 / full.elapsed_s,
        "records/s": full.batches * workload.records_per_batch / full.elapsed_s,
        "servers CPU s/GB": servers / gigabytes,
        "client CPU s/GB": client / gigabytes,
    }
    used_mb = _memory_mb(pids)
    records = touched + (warm.batches + full.batches) * workload.records_per_batch
    figures |= _consume(stream, records, pids)
    half = producers.send(
        seconds=durations.half_load,
        in_flight=10 * workload.batches_in_flight,
        batches_per_s=full.batches / full.elapsed_s / 2,
    )
    figures |= _latencies(half)
    single = producers.send(seconds=durations.one_in_flight, in_flight=1)
    figures["p50 ms, 1 in flight"] = percentile(single.latencies_ms, 0.5)
    figures["PSS MB"] = max(used_mb, _memory_mb(pids))
    return figures


def _consume(stream: Stream, records: int, pids: Sequence[int]) -> dict[str, float]:
    servers = cpu_seconds(pids)
    seen, elapsed_s = consume(stream.bootstrap, stream.topic, stream.partitions, records)
    gigabytes = records * stream.record_bytes / _GB
    return {
        "consume MB/s": seen * stream.record_bytes / 1e6 / elapsed_s,
        "consume: servers CPU s/GB": (cpu_seconds(pids) - servers) / gigabytes,
    }


def _latencies(sent: Sent) -> dict[str, float]:
    return {
        f"p{name} ms, half load": percentile(sent.latencies_ms, fraction)
        for name, fraction in (("50", 0.5), ("99", 0.99), ("99.9", 0.999))
    }


def _memory_mb(pids: Sequence[int]) -> float:
    """All server processes together; what they share is counted once."""
    return sum(memory(pid).pss_mb for pid in pids)
