"""A stream's offsets in its checkpoint: written, read again, and told from what others wrote."""

import json
from typing import Any

import pytest

from quorate.common.topic_partition import TopicPartition
from quorate.spark.errors import CheckpointError
from quorate.spark.streaming.stream_checkpoint import StreamOffsets, batch_start, parse_offsets

A0, A2, A10, B0 = (
    TopicPartition("a", 0),
    TopicPartition("a", 2),
    TopicPartition("a", 10),
    TopicPartition("b", 0),
)
IDS = {"a": b"\x01" * 16, "b": b"\x02" * 16}
START = StreamOffsets({A0: 1, B0: 2}, IDS, initial=True)
END = StreamOffsets({A0: 5, B0: 2}, IDS, since=START)


def test_the_format() -> None:
    # Checkpoints outlive releases: a change here needs a new version, and a reader of this one.
    assert json.dumps(StreamOffsets({B0: 7, A10: 3, A2: 0}, IDS).to_json()) == (
        '{"a": {"2": 0, "10": 3}, "b": {"0": 7}, "@quorate": {"version": 1, "topicIds": '
        f'{{"a": "{"01" * 16}", "b": "{"02" * 16}"}}}}}}'
    )


@pytest.mark.parametrize(
    "offsets", [StreamOffsets({}, {}), StreamOffsets({A0: 1}, IDS), START, END]
)
def test_offsets_survive_the_checkpoint(offsets: StreamOffsets) -> None:
    text = json.dumps(offsets.to_json())
    assert parse_offsets(json.loads(text)) == offsets
    assert json.dumps(parse_offsets(json.loads(text)).to_json()) == text


def damaged(**changes: object) -> dict[str, Any]:
    return {**START.to_json(), **changes}


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (
            {"a": {"0": 23}},
            "not written by format quorate.*look like those of Spark's Kafka source",
        ),
        ({"logOffset": 3}, "not written by format quorate.*checkpointLocation of its own"),
        ({}, "not written by format quorate"),
        (17, "not written by format quorate: its offsets are 17"),
        (None, "not written by format quorate"),
        ({"@quorate": 1}, "not written by format quorate"),
        ({"@quorate": {"version": 2}}, "version 2, and this Quorate reads version 1"),
        ({"@quorate": {}}, "version None"),
        ({"@quorate": {"version": 1}}, "damaged"),
        (damaged(a={"0": -1}), "damaged.*-1 is no offset"),
        (damaged(a={"0": "5"}), "damaged"),
        (damaged(a={"x": 5}), "damaged"),
        (damaged(a=[5]), "damaged"),
        (damaged(c={"0": 5}), "damaged.*no id of topic 'c'"),
    ],
)
def test_another_checkpoint_is_refused(found: object, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        parse_offsets(found)


def test_a_long_checkpoint_is_named_in_short() -> None:
    with pytest.raises(CheckpointError) as refusal:
        parse_offsets({f"topic{n}": {"0": n} for n in range(1000)})
    assert len(str(refusal.value)) < 600


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        # Spark asks anew where to begin, after a kill in the first batch: the batch knows better.
        (StreamOffsets({A0: 4, B0: 2}, IDS, initial=True), END, START),
        (StreamOffsets({A0: 9, B0: 9}, IDS, initial=True), START, START),
        (START, END, START),
        # In later batches, Spark itself knows.
        (END, StreamOffsets({A0: 8, B0: 3}, IDS), END),
        (END, END, END),
    ],
)
def test_d2_a_batch_starts_where_it_started_the_first_time(
    start: StreamOffsets, end: StreamOffsets, expected: StreamOffsets
) -> None:
    assert batch_start(start, end) == expected
