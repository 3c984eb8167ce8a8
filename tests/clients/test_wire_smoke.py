"""Unmodified clients against the listener alone: one process, logs in memory."""

import confluent_kafka
import pytest

from tests.support.kafka_clients import CLIENTS, Client, Confluent, Kcat

pytestmark = [
    pytest.mark.clients,
    pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning"),
]


@pytest.fixture(params=CLIENTS, ids=lambda client: client.name)
def client(request: pytest.FixtureRequest, wire: str) -> Client:
    if request.param is Kcat and Kcat.missing():
        pytest.skip("kcat is not installed: apt-get install kcat")
    made: Client = request.param(wire)
    return made


def test_create_produce_list_offsets_and_consume_by_assign(client: Client) -> None:
    client.create("smoke", partitions=3, replication_factor=1)
    sent = {p: [b"%d-%d" % (p, number) for number in range(500)] for p in range(3)}
    client.produce("smoke", sent)
    assert client.end_offsets("smoke", 3) == {0: 500, 1: 500, 2: 500}
    assert client.consume("smoke", {p: len(items) for p, items in sent.items()}) == sent


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_batches_pass_through(wire: str, codec: str) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": wire, "compression.type": codec, "linger.ms": 50}
    )
    values = [b"compressible " * 100] * 200
    for value in values:
        producer.produce("packed", value, partition=0)
    assert producer.flush(30) == 0
    assert Confluent(wire).consume("packed", {0: 200}) == {0: values}
