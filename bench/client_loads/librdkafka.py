"""Loads by librdkafka, in the shape of confluent-kafka: saturated producers of several kinds."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from bench._kafka_load import in_own_process
from bench._kafka_producers import Producers, Stream
from bench._transactional_load import Chunks, Lanes
from bench.client_loads.load import PARTITIONS, Figures, ServersCost, Target, latencies
from bench.produce_matrix.workload import Workload

_PRODUCERS: Final = 2
_BYTES_IN_FLIGHT: Final = 2 << 20
_WARM_UP_S: Final = 0.5


@dataclass(frozen=True)
class Saturated:
    """Two producers of one process, with so many bytes on their way at any time. Latency is from
    when a batch was handed over."""

    name: str
    seconds: float
    record_bytes: int
    batch_bytes: int
    settings: Mapping[str, object] = field(default_factory=dict)
    """Further settings of librdkafka."""
    partitions: int = PARTITIONS
    bytes_in_flight: int = _BYTES_IN_FLIGHT
    """Handed over and not acknowledged, over all producers, whatever the size of a batch."""

    def measure(self, target: Target) -> Figures:
        """Send in a process of its own for a while.

        Raises:
            RuntimeError: a batch was not acknowledged.
        """
        return in_own_process(self._send, target)

    def _send(self, target: Target) -> Figures:
        workload = Workload(batch_bytes=self.batch_bytes, record_bytes=self.record_bytes)
        producers = Producers(
            Stream(
                bootstrap=target.bootstrap,
                topic=target.topic,
                partitions=self.partitions,
                acks="all",
                records_per_batch=workload.records_per_batch,
                record_bytes=self.record_bytes,
                settings=self.settings,
            ),
            _PRODUCERS,
        )
        producers.touch()
        in_flight = self.bytes_in_flight // self.batch_bytes
        producers.send(seconds=_WARM_UP_S, in_flight=in_flight)
        cost = ServersCost(target)
        sent = producers.send(seconds=self.seconds, in_flight=in_flight)
        payload_bytes = sent.batches * workload.payload_bytes
        return {
            "MB/s": payload_bytes / sent.elapsed_s / 1e6,
            "records/s": sent.batches * workload.records_per_batch / sent.elapsed_s,
            **latencies(sent.latencies_ms),
            **cost.per_gigabyte(payload_bytes),
        }


@dataclass(frozen=True)
class Transactional:
    """One producer that sends so many records, waits until they are acknowledged, commits and
    begins again. Latency is that of the commits."""

    seconds: float
    records: int = 1_000
    record_bytes: int = 1_000
    partitions: int = PARTITIONS

    @property
    def name(self) -> str:
        return f"librdkafka-transactions-of-{self.records}"

    def measure(self, target: Target) -> Figures:
        """Send in a process of its own for a while.

        Raises:
            RuntimeError: records were not acknowledged.
            KafkaException: a transaction failed.
        """
        return in_own_process(self._send, target)

    def _send(self, target: Target) -> Figures:
        lanes = Lanes(
            Chunks(
                bootstrap=target.bootstrap,
                topic=target.topic,
                partitions=self.partitions,
                producers=1,
                records=self.records,
                record_bytes=self.record_bytes,
                transactional_id=target.topic,
            )
        )
        lanes.send(_WARM_UP_S)
        cost = ServersCost(target)
        done = lanes.send(self.seconds)
        records = done.chunks * self.records
        payload_bytes = records * self.record_bytes
        return {
            "MB/s": payload_bytes / done.elapsed_s / 1e6,
            "records/s": records / done.elapsed_s,
            **latencies(done.commits_ms),
            **cost.per_gigabyte(payload_bytes),
        }
