"""The rows of the bench: what most clients do, as long as the kind of run allows."""

from bench.client_loads.bare_fetch import BareFetch
from bench.client_loads.few_records import EndToEnd, ManyProducers
from bench.client_loads.java_tools import JavaEndToEnd, JavaProducer
from bench.client_loads.librdkafka import Saturated, Transactional
from bench.client_loads.load import PARTITIONS, Load
from bench.peers.kafka import KafkaInstallation
from bench.produce_matrix.workload import KIB


def java_loads(java: KafkaInstallation, *, quick: bool) -> list[Load]:
    """Kafka's own tools, with Kafka's own client."""
    large, small = (300_000, 2_000_000) if quick else (1_500_000, 8_000_000)
    return [
        JavaProducer(java, record_bytes=1_000, batch_bytes=64 * KIB, records=large),
        JavaProducer(java, record_bytes=100, batch_bytes=16 * KIB, records=small),
        JavaEndToEnd(java, record_bytes=100, records=1_000 if quick else 5_000),
    ]


def librdkafka_loads(*, quick: bool) -> list[Load]:
    """Unmodified confluent-kafka, and bare requests."""
    seconds = 2.0 if quick else 5.0

    def saturated(name: str, record: int, batch: int, **settings: object) -> Saturated:
        named = {key.replace("_", "."): value for key, value in settings.items()}
        return Saturated(f"librdkafka-{name}", seconds, record, batch * KIB, named)

    return [
        saturated("1000b-64kib", 1_000, 64),
        saturated("1000b-16kib", 1_000, 16),
        saturated("100b-64kib", 100, 64),
        saturated("max-in-flight-5", 1_000, 64, max_in_flight_requests_per_connection=5),
        saturated("idempotent", 1_000, 64, enable_idempotence=True),
        Transactional(seconds),
        ManyProducers(seconds),
        EndToEnd(records=500 if quick else 3_000),
        BareFetch(seconds, partitions=1, megabytes=64 if quick else 256),
        BareFetch(seconds, partitions=PARTITIONS, megabytes=64 if quick else 256),
    ]
