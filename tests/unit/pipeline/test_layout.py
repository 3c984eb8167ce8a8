"""Names in the sink: back and forth, and nobody else's are taken for one's own."""

import contextlib

import pytest

from quorate.common.topic_partition import TopicPartition
from quorate.pipeline import sink_layout as layout
from quorate.pipeline.pipeline_errors import SinkError
from quorate.pipeline.sink import files_beyond, lowered_to_file_starts
from quorate.pipeline.sink_layout import BatchId, DataFile
from quorate.spark.offset_ranges import OffsetRange

P3 = TopicPartition("orders.eu", 3)
BATCH = BatchId(57, 2)
STAGED = "topic=orders.eu/partition=3/date=2026-11-22/part-00000-9f-c1.c000.zstd.parquet"


def test_a_name_tells_what_the_file_holds() -> None:
    names = layout.final_names("lake", BATCH, [OffsetRange(P3, 100, 200)], [STAGED])
    (name,) = names.values()
    assert name == (
        "topic=orders.eu/partition=3/date=2026-11-22/"
        "lake-00000000000000000100-00000000000000000200-57-2-00000.zstd.parquet"
    )
    assert layout.data_file("lake", name) == DataFile(name, P3, 100, 200, BATCH)


@pytest.mark.parametrize(
    "path",
    [
        "topic=t/partition=0/date=d/part-00000-9f.c000.zstd.parquet",
        "topic=t/partition=0/date=d/lake2-00000000000000000100-00000000000000000200-57-2-00000.parquet",
        "topic=t/partition=0/date=d/.lake-00000000000000000100-00000000000000000200-57-2-00000.zstd.parquet",
        "topic=t/date=d/lake-00000000000000000100-00000000000000000200-57-2-00000.zstd.parquet",
        "lake-00000000000000000100-00000000000000000200-57-2-00000.zstd.parquet",
    ],
)
def test_files_of_others_are_nobody_s_to_remove(path: str) -> None:
    assert layout.data_file("lake", path) is None
    assert layout.data_file("lak", path) is None


def test_rows_of_another_partition_are_refused() -> None:
    for staged in (STAGED.replace("=3", "=4"), STAGED.replace("topic=orders.eu/", "")):
        with pytest.raises(SinkError, match="must leave the columns topic and partition"):
            layout.final_names("lake", BATCH, [OffsetRange(P3, 100, 200)], [staged])


def test_what_spark_keeps_for_itself_is_no_rows() -> None:
    assert layout.is_rows(STAGED)
    assert not layout.is_rows("_SUCCESS")
    assert not layout.is_rows("_temporary/0/" + STAGED)
    assert not layout.is_rows(STAGED.replace("part-", ".part-"))


def test_an_intent_is_read_as_it_was_written() -> None:
    text = layout.intent_text(BATCH, ["b", "a"])
    assert layout.files_of_intent("i", text) == ["a", "b"]
    assert layout.batch_of_intent(layout.intent_path("lake", BATCH)) == BATCH
    assert layout.batch_of_intent("_quorate/lake/intents/x.json") is None


@pytest.mark.parametrize("length", [0, 1, 20, -14, -5, -2])
def test_an_intent_that_breaks_off_had_put_nothing_in_place(length: int) -> None:
    assert layout.files_of_intent("i", layout.intent_text(BATCH, ["a"])[:length]) == []


def test_an_intent_of_a_newer_version_is_refused() -> None:
    text = layout.intent_text(BATCH, ["a"]).replace('"version": 2', '"version": 3')
    with pytest.raises(SinkError, match="has version 3"):
        layout.files_of_intent("i", text)


def test_an_intent_of_the_release_before_is_read() -> None:
    text = '{"version": 1, "batch": "57-2", "files": ["a", "b"]}'
    assert layout.files_of_intent("i", text) == ["a", "b"]


def test_no_flipped_bit_of_an_intent_names_another_file() -> None:
    """The file that it names would be removed."""
    data = layout.intent_text(BATCH, ["topic=a/x", "topic=b/y"]).encode()
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        text = flipped.decode("latin-1")
        with contextlib.suppress(SinkError):
            files = layout.files_of_intent("i", text)
            assert files == ["topic=a/x", "topic=b/y"], f"bit {bit}: {text!r}"


def test_a_pipeline_set_back_into_a_file_begins_where_that_begins() -> None:
    files = [DataFile(str(start), P3, start, end, BATCH) for start, end in ((0, 10), (10, 30))]
    other = TopicPartition("orders.eu", 4)
    for offset, begins in ((0, 0), (5, 0), (10, 10), (11, 10), (29, 10), (30, 30), (40, 40)):
        assert lowered_to_file_starts({P3: offset, other: 7}, files) == {P3: begins, other: 7}
    assert files_beyond({P3: 10}, files) == files[1:]
    assert files_beyond({other: 0}, files) == files
