"""Batches of a few kilobytes that decompress to much more: what they cost a broker and others.

``message.max.decompressed.bytes`` is 64 MiB. A batch above it is refused, and one just below is
valid: many of those at once must not hold much memory, nor keep others waiting.
"""

import logging
import struct
import threading
import time
from collections.abc import Iterator

import pytest

from bench.hostile_requests.wire import Wire
from bench.slow_consumers import PeakMemory
from quorate.client.results import NewTopic
from quorate.testing import RunningCluster, running_cluster
from quorate_proto.v1 import errors_pb2
from tests.support.kafka_wire import Values
from tests.support.raw_client import PRODUCE, RawClient, produce, string
from tests.support.record_batches import CODECS, TRANSACTIONAL, Record, encode_batch
from tests.support.waiting import let_time_pass
from tests.support.whole_cluster import wait_until_known

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

log = logging.getLogger(__name__)

BOMB_CODECS = [name for name in CODECS if name != "none"]
TOO_LARGE_BYTES = 65 << 20
VALID_BYTES = 60 << 20
AT_ONCE = 12
PARTITIONS = 8
MEMORY_BOUND_MB = 600
INIT_PRODUCER_ID = 22
ADD_PARTITIONS = 24
FIND_COORDINATOR = 10


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    settings = {
        "log.flush": "os",
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "transaction.state.log.num.partitions": 1,
    }
    with running_cluster(config=settings) as cluster:
        with cluster.admin() as admin:
            for name, policy in (("plain", "delete"), ("compacted", "compact")):
                new = NewTopic(
                    name=name,
                    num_partitions=PARTITIONS,
                    replication_factor=1,
                    configs={"cleanup.policy": policy},
                )
                admin.create_topics([new])[0].raise_for_error()
                wait_until_known(cluster, name, PARTITIONS)
        yield cluster


def bomb(codec: str, size: int, attributes: int = 0, producer: tuple[int, int] = (-1, -1)) -> bytes:
    record = Record(0, key=b"key", value=bytes(size))
    sequence = -1 if producer == (-1, -1) else 0
    return encode_batch(
        [record], codec=codec, attributes=attributes, producer=(*producer, sequence)
    )


@pytest.mark.parametrize("codec", BOMB_CODECS)
@pytest.mark.parametrize("topic", ["plain", "compacted"])
def test_a_bomb_is_refused_by_its_size(cluster: RunningCluster, topic: str, codec: str) -> None:
    with RawClient(cluster.bootstrap) as client:
        answer = produce(client, topic, 0, bomb(codec, TOO_LARGE_BYTES))
        assert answer.error_code == errors_pb2.MESSAGE_TOO_LARGE
        good = encode_batch([Record(0, key=b"k")], codec=codec)
        assert produce(client, topic, 0, good).error_code == errors_pb2.NONE


def begin_transaction(wire: Wire, transactional_id: str) -> tuple[int, int]:
    """Producer id and epoch of a transaction that has partition 0 of "plain"."""
    values: Values = {"transactional_id": transactional_id, "transaction_timeout": 60_000}
    wire.ask(FIND_COORDINATOR, 2, {"key": transactional_id, "key_type": 1})
    while (begun := wire.ask(INIT_PRODUCER_ID, 1, values)).error_code:
        let_time_pass(0.05, "the coordinator may be there")
    values = {
        "v3_and_below_transactional_id": transactional_id,
        "v3_and_below_producer_id": begun.producer_id,
        "v3_and_below_producer_epoch": begun.producer_epoch,
        "v3_and_below_topics": [{"name": "plain", "partitions": [0]}],
    }
    (topic,) = wire.ask(ADD_PARTITIONS, 2, values).results_by_topic_v3_and_below
    assert [one.partition_error_code for one in topic.results_by_partition] == [0]
    return int(begun.producer_id), int(begun.producer_epoch)


@pytest.mark.parametrize("codec", BOMB_CODECS)
def test_a_bomb_in_a_transaction_is_refused_too(cluster: RunningCluster, codec: str) -> None:
    name = f"bomber-{codec}"
    with Wire(cluster.bootstrap) as wire, RawClient(cluster.bootstrap) as client:
        producer = begin_transaction(wire, name)
        batch = bomb(codec, TOO_LARGE_BYTES, TRANSACTIONAL, producer)
        answer = produce(client, "plain", 0, batch, transactional_id=name)
        assert answer.error_code == errors_pb2.MESSAGE_TOO_LARGE


def produce_request(topic: str, batch: bytes) -> bytes:
    """Produce v3 of the batch to every partition."""
    body = struct.pack(">hhii", -1, -1, 60_000, 1) + string(topic)
    body += struct.pack(">i", PARTITIONS)
    return body + b"".join(
        struct.pack(">ii", number, len(batch)) + batch for number in range(PARTITIONS)
    )


@pytest.mark.parametrize(
    "codec",
    [
        # One codec is enough for every run: the bound is that of all of them.
        pytest.param(codec, marks=[] if codec == "zstd" else [pytest.mark.slow])
        for codec in BOMB_CODECS
    ],
)
def test_many_large_batches_at_once_stay_within_the_memory_bound(
    cluster: RunningCluster, codec: str
) -> None:
    """Of each codec 96 at once, which are 5.8 GB; they are decompressed one after the other."""
    pid = cluster.broker_pid(1)
    assert pid is not None
    request = produce_request("plain", bomb(codec, VALID_BYTES))
    memory = PeakMemory(pid)
    base_mb = memory.peak_mb
    answers: list[bytes] = []

    def send() -> None:
        with Wire(cluster.bootstrap) as wire:
            wire.socket.settimeout(240)
            answers.append(wire.call(PRODUCE, 3, request))

    threads = [threading.Thread(target=send) for _ in range(AT_ONCE)]
    with memory.watched(), RawClient(cluster.bootstrap) as other:
        for thread in threads:
            thread.start()
        good = encode_batch([Record(0, key=b"k")])
        waits_s: list[float] = []
        while any(thread.is_alive() for thread in threads):
            begin_s = time.monotonic()
            assert produce(other, "compacted", 1, good).error_code == errors_pb2.NONE
            waits_s.append(time.monotonic() - begin_s)
        for thread in threads:
            thread.join()
    assert len(answers) == AT_ONCE
    more_mb = memory.peak_mb - base_mb
    log.info("%s: %.0f MB more, others waited %.2f s at most", codec, more_mb, max(waits_s))
    assert more_mb < MEMORY_BOUND_MB
