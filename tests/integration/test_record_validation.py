"""A real broker refuses records that no consumer could read, and consumers go on behind them."""

import time
from collections.abc import Iterator

import confluent_kafka
import pytest

from quorate.client.results import NewTopic
from quorate.testing import RunningCluster, running_cluster
from quorate_proto.v1 import errors_pb2
from tests.support.kafka_clients import Confluent
from tests.support.raw_client import RawClient, fetch, produce
from tests.support.record_batches import (
    CODECS,
    CONTROL,
    LOG_APPEND_TIME,
    Record,
    assemble,
    encode_batch,
    plain_records,
)
from tests.support.whole_cluster import wait_until_known

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

ONE = plain_records(b"value")
BOMB_BYTES = 65 << 20


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with running_cluster(config={"log.flush": "os"}) as cluster:
        yield cluster


def create(cluster: RunningCluster, topic: str, **settings: str) -> None:
    with cluster.admin() as admin:
        new = NewTopic(name=topic, num_partitions=1, replication_factor=1, configs=settings)
        admin.create_topics([new])[0].raise_for_error()
    wait_until_known(cluster, topic, 1)


def claiming(records: bytes, count: int, attributes: int = 0) -> bytes:
    now_ms = int(time.time() * 1000)
    return assemble(
        records,
        base_offset=0,
        last_delta=count - 1,
        count=count,
        attributes=attributes,
        base_timestamp=now_ms,
        max_timestamp=now_ms,
    )


REFUSED: dict[str, tuple[bytes, int]] = {
    "garbage with a right checksum": (claiming(b"\xfegarbage", 1), errors_pb2.INVALID_RECORD),
    "zstd that is not": (
        claiming(b"not zstd", 1, CODECS["zstd"]), errors_pb2.INVALID_RECORD,
    ),
    "much lz4 that is not": (
        claiming(b"not lz4" * 5_000, 1, CODECS["lz4"]), errors_pb2.INVALID_RECORD,
    ),
    "five records claimed and one there": (claiming(ONE, 5), errors_pb2.INVALID_RECORD),
    "2^31-1 records claimed and none there": (claiming(b"", 2**31 - 1), errors_pb2.INVALID_RECORD),
    "one record claimed and two there": (
        claiming(plain_records(b"a", b"b"), 1), errors_pb2.INVALID_RECORD,
    ),
    "timestamp -2^63": (encode_batch([Record(0, -(2**63))]), errors_pb2.INVALID_TIMESTAMP),
    "timestamp 2^63-1": (encode_batch([Record(0, 2**63 - 1)]), errors_pb2.INVALID_TIMESTAMP),
    "the time of the broker": (
        encode_batch([Record(0)], attributes=LOG_APPEND_TIME), errors_pb2.INVALID_TIMESTAMP,
    ),
    "a control batch": (claiming(ONE, 1, CONTROL), errors_pb2.INVALID_RECORD),
    "a base offset": (encode_batch([Record(5)], base_offset=5), errors_pb2.INVALID_RECORD),
    "codec 7": (claiming(ONE, 1, 7), errors_pb2.UNSUPPORTED_COMPRESSION_TYPE),
    "a bomb": (
        encode_batch([Record(0, value=bytes(BOMB_BYTES))], codec="zstd"),
        errors_pb2.MESSAGE_TOO_LARGE,
    ),
}  # fmt: skip


def test_what_kafka_refuses_is_refused_and_consumers_read_past_it(cluster: RunningCluster) -> None:
    create(cluster, "checked")
    taken: list[bytes] = []
    with RawClient(cluster.bootstrap) as client:
        for number, (what, (batch, code)) in enumerate(REFUSED.items()):
            assert produce(client, "checked", 0, batch).error_code == code, what
            value = b"after %d" % number
            codec = list(CODECS)[number % len(CODECS)]
            good = encode_batch([Record(0, value=value), Record(1, value=value)], codec=codec)
            answer = produce(client, "checked", 0, good)
            assert (answer.error_code, answer.base_offset) == (errors_pb2.NONE, 2 * number)
            taken += [value, value]
        assert fetch(client, "checked", 0, 0).high_watermark == len(taken)
    found = Confluent(cluster.bootstrap).consume("checked", {0: len(taken)})
    assert found == {0: taken}


def test_a_greatest_timestamp_that_is_none_is_put_right(cluster: RunningCluster) -> None:
    """Otherwise retention would never delete the batch, and a search would end before it."""
    create(cluster, "times")
    now_ms = int(time.time() * 1000)
    lie = assemble(
        ONE, base_offset=0, last_delta=0, count=1, base_timestamp=now_ms, max_timestamp=2**62
    )
    with RawClient(cluster.bootstrap) as client:
        assert produce(client, "times", 0, lie).error_code == errors_pb2.NONE
    consumer = confluent_kafka.Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "t"})
    try:
        asked = [confluent_kafka.TopicPartition("times", 0, now_ms + 1)]
        assert consumer.offsets_for_times(asked, timeout=10)[0].offset in (-1, 1)
        consumer.assign([confluent_kafka.TopicPartition("times", 0, 0)])
        message = consumer.poll(10)
        assert message is not None
        assert message.timestamp()[1] == now_ms
    finally:
        consumer.close()


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_a_compacted_topic_takes_no_record_without_a_key(
    cluster: RunningCluster, codec: str
) -> None:
    topic = f"compacted-{codec}"
    create(cluster, topic, **{"cleanup.policy": "compact"})
    large = bytes(100_000)
    keyless = [Record(0, key=b"k", value=large), Record(1, key=None)]
    with RawClient(cluster.bootstrap) as client:
        refused = produce(client, topic, 0, encode_batch(keyless, codec=codec))
        assert refused.error_code == errors_pb2.INVALID_RECORD
        taken = produce(client, topic, 0, encode_batch(keyless[:1], codec=codec))
        assert (taken.error_code, taken.base_offset) == (errors_pb2.NONE, 0)
