"""Where rows go: as Kafka's own producers send them."""

import warnings
from collections import Counter
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.spark.errors import RowError, UnknownTopic
from quorate.spark.writing.partitioner import Partitioner, TargetTopic
from quorate.spark.writing.row_columns import rows_of
from quorate.spark.writing.writing_kernels import STICKY_BYTES

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.partitioner.default import murmur2 as kafka_murmur2

TOPICS = {"t": 12, "u": 3, "one": 1, "many": 10_007}


def describe(topic: str) -> TargetTopic:
    if topic not in TOPICS:
        raise UnknownTopic(topic)
    return TargetTopic(topic.encode(), TOPICS[topic], 1000)


def partitioner(topic: str | None = "t", first: int = 0) -> Partitioner:
    return Partitioner(describe, topic, first)


def places(
    chooser: Partitioner, batch: pa.RecordBatch, *, topics: bool = False
) -> list[tuple[str, int]]:
    """Topic and partition of every row; those of one partition are in their order."""
    found: dict[int, tuple[str, int]] = {}
    for part in chooser.split(rows_of(batch, topic_column=topics, now_ms=0)):
        rows = part.order[part.begin : part.end].tolist()
        assert rows == sorted(rows)
        found |= dict.fromkeys(rows, tuple(chooser.targets[part.slot].partition))
    assert len(found) == batch.num_rows
    return [found[row] for row in range(batch.num_rows)]


def keyed(keys: Sequence[bytes | None], **columns: pa.Array) -> pa.RecordBatch:
    values = pa.array([b"v"] * len(keys))
    return pa.record_batch({"value": values, "key": pa.array(keys, pa.binary()), **columns})


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"", 275646681),
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_that_of_kafka_s_own_test(key: bytes, expected: int) -> None:
    ((_, partition),) = places(partitioner("many"), keyed([key]))
    assert partition == (expected & 0x7FFFFFFF) % TOPICS["many"]


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=50))
def test_keys_go_where_kafka_python_sends_them(keys: list[bytes]) -> None:
    expected = [("t", (kafka_murmur2(key) & 0x7FFFFFFF) % 12) for key in keys]
    assert places(partitioner(), keyed(keys)) == expected


def test_a_row_s_own_partition_wins_over_its_key() -> None:
    partitions = pa.array([11, None, 0], pa.int32())
    found = places(partitioner(), keyed([b"21"] * 3, partition=partitions))
    assert [partition for _, partition in found] == [11, (-973932308 & 0x7FFFFFFF) % 12, 0]


@pytest.mark.parametrize("wrong", [12, -1, 2**31 - 1])
def test_a_partition_that_does_not_exist_is_named(wrong: int) -> None:
    partitions = pa.array([None, wrong], pa.int32())
    with pytest.raises(RowError, match=f"partition {wrong} of topic t, .* partitions 0 to 11"):
        places(partitioner(), keyed([b"a", b"b"], partition=partitions))
    topics = pa.array(["t", "u"])
    batch = keyed([b"a", b"b"], partition=partitions, topic=topics)
    with pytest.raises(RowError, match="of topic u, which has partitions 0 to 2"):
        places(partitioner(None), batch, topics=True)


def test_rows_without_keys_stay_for_a_while_and_move_on() -> None:
    size = STICKY_BYTES // 4
    batch = pa.record_batch({"value": pa.array([bytes(size)] * 60)})
    chooser = partitioner(first=10)
    found = [partition for _, partition in places(chooser, batch)]
    assert found[:12] == [10] * 4 + [11] * 4 + [0] * 4
    assert max(Counter(found).values()) <= 8
    again = [partition for _, partition in places(chooser, batch.slice(0, 1))]
    assert again == [(10 + 60 // 4) % 12], "goes on where the last batch ended"


def test_rows_say_their_topics() -> None:
    topics = pa.array(["u", "t", "one", "u"])
    chooser = partitioner(None)
    batch = keyed([b"21"] * 4, topic=topics)
    hashed = -973932308 & 0x7FFFFFFF
    expected = [("u", hashed % 3), ("t", hashed % 12), ("one", 0), ("u", hashed % 3)]
    assert places(chooser, batch, topics=True) == expected
    assert places(chooser, batch, topics=True) == expected
    assert places(chooser, batch.slice(2, 1), topics=True) == [("one", 0)]
    assert len(chooser.targets) == 16
    with pytest.raises(UnknownTopic):
        places(chooser, keyed([None], topic=pa.array(["nowhere"])), topics=True)


def test_the_option_s_topic_wins_over_the_column() -> None:
    batch = keyed([b"21"], topic=pa.array(["u"]))
    assert places(partitioner("one"), batch) == [("one", 0)]
