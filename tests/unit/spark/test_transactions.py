"""What Spark reads of a topic with transactions: the committed ones, unless told otherwise."""

import itertools
from collections.abc import Iterator
from random import Random
from typing import Final

import pyarrow as pa
import pytest
from pyspark.sql.datasource import InputPartition

from quorate.common.topic_partition import TopicPartition
from quorate.spark.decoding.aborted_batches import AbortedBatches
from quorate.spark.decoding.arrow_decoder import ArrowDecoder
from quorate.spark.decoding.record_batches import CONTROL, TRANSACTIONAL
from quorate.spark.errors import RangeUnavailable
from quorate.spark.options.option_declaration import Scope
from quorate.spark.options.read_options import parse_read_options
from quorate.spark.reading.batch_reader import QuorateReader
from quorate.spark.schema import source_schema
from quorate_proto.v1.replication_pb2 import AbortedTransaction
from tests.support.fake_range_cluster import FakeRangeCluster
from tests.support.record_batches import Record, encode_batch

OFFSETS = pa.schema([("offset", pa.int64())])
ORDERS = TopicPartition("orders", 0)
PRODUCERS: Final = 3
PLAIN, SEND, COMMIT, ABORT = range(4)


class Log:
    """A log as producers write it, and which of its records count: by following each producer."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, int, bytes]] = []
        self.visible: set[int] = set()
        self.aborted: list[AbortedTransaction] = []
        self._open: dict[int, list[int]] = {}
        self._end = 0

    def do(self, act: int, producer: int, count: int, codec: str = "none") -> None:
        if act in (COMMIT, ABORT):
            self._finish(producer, committed=act == COMMIT)
            return
        offsets = list(range(self._end, self._end + count))
        if act == SEND:
            self._open.setdefault(producer, []).extend(offsets)
        elif producer in self._open:
            return
        else:
            self.visible.update(offsets)
        self._append(offsets, TRANSACTIONAL if act == SEND else 0, producer, codec)

    def finish(self) -> None:
        for producer in list(self._open):
            self._finish(producer, committed=False)

    def _finish(self, producer: int, *, committed: bool) -> None:
        offsets = self._open.pop(producer, [])
        if committed:
            self.visible.update(offsets)
        elif offsets:
            self.aborted.append(
                AbortedTransaction(
                    producer_id=producer, first_offset=offsets[0], last_offset=self._end
                )
            )
        self._append([self._end], TRANSACTIONAL | CONTROL, producer, "none")

    def _append(self, offsets: list[int], attributes: int, producer: int, codec: str) -> None:
        encoded = encode_batch(
            [Record(offset) for offset in offsets],
            codec=codec,
            attributes=attributes,
            producer=(producer, 0, 0),
        )
        self._end = offsets[-1] + 1
        self.batches.append((offsets[0], self._end, encoded))

    @property
    def end(self) -> int:
        return self._end

    def told_of(self, start: int, end: int) -> list[AbortedTransaction]:
        """As a broker tells of a frame."""
        return [a for a in self.aborted if a.first_offset < end and a.last_offset >= start]


@pytest.mark.parametrize("seed", range(20))
def test_rows_are_those_of_committed_transactions(seed: int) -> None:
    random = Random(seed)
    log = Log()
    for _ in range(80):
        act = random.choice([PLAIN, SEND, SEND, COMMIT, ABORT])
        producer, count = random.randrange(PRODUCERS), random.randint(1, 4)
        log.do(act, producer, count, random.choice(["none", "lz4"]))
    log.finish()
    for _ in range(10):
        start = random.randrange(log.end)
        end = random.randint(start, log.end)
        decoder = ArrowDecoder(ORDERS, start, end, OFFSETS)
        found: list[int] = []
        wanted = [batch for batch in log.batches if batch[1] > start and batch[0] < end]
        for frame in _batched(wanted, random.randint(1, 20)):
            told = AbortedBatches(log.told_of(frame[0][0], frame[-1][1]))
            for rows in decoder.decode(b"".join(batch[2] for batch in frame), told):
                found += rows.column("offset").to_pylist()
        assert found == sorted(offset for offset in log.visible if start <= offset < end)
        assert decoder.next_offset == (wanted[-1][1] if wanted else start)


def _batched(
    batches: list[tuple[int, int, bytes]], size: int
) -> Iterator[list[tuple[int, int, bytes]]]:
    for at in range(0, len(batches), size):
        yield batches[at : at + size]


# -- a query ---------------------------------------------------------------------------------------


@pytest.fixture
def cluster() -> Iterator[FakeRangeCluster]:
    """A transaction committed (0-4), one aborted (6-9), a plain batch, one open from 13 on."""
    with FakeRangeCluster() as running:
        log = Log()
        for act, producer, count in (
            (SEND, 0, 5),
            (COMMIT, 0, 0),
            (SEND, 1, 4),
            (ABORT, 1, 0),
            (PLAIN, 2, 2),
            (SEND, 0, 3),
        ):
            log.do(act, producer, count)
        partition = running.add("orders", 0, [])
        partition.batches = log.batches
        partition.high_watermark = log.end
        partition.open_since = 13
        partition.aborted = log.aborted
        yield running


def read(cluster: FakeRangeCluster, **options: str) -> list[int]:
    given = {
        "kafka.bootstrap.servers": cluster.bootstrap,
        "subscribe": "orders",
        "fetchOffset.numRetries": "1",
        "fetchOffset.retryIntervalMs": "1",
        **{name.replace("__", "."): text for name, text in options.items()},
    }
    schema = source_schema(include_headers=False)
    reader = QuorateReader(parse_read_options(given, Scope.BATCH), schema)
    parts: list[InputPartition] = list(reader.partitions())
    batches = itertools.chain.from_iterable(reader.read(part) for part in parts)
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


def test_d2_a_query_reads_what_was_committed(cluster: FakeRangeCluster) -> None:
    assert read(cluster) == [0, 1, 2, 3, 4, 11, 12]


def test_d2_a_query_reads_all_there_is_when_asked(cluster: FakeRangeCluster) -> None:
    everything = [0, 1, 2, 3, 4, 6, 7, 8, 9, 11, 12, 13, 14, 15]
    assert read(cluster, kafka__isolation__level="read_uncommitted") == everything


def test_a_range_that_reaches_into_an_open_transaction_is_refused(
    cluster: FakeRangeCluster,
) -> None:
    with pytest.raises(RangeUnavailable, match=r"the log holds \[0, 13\)"):
        read(cluster, endingOffsets='{"orders":{"0":14}}')
