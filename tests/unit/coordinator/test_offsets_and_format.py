"""Committed offsets, and how groups and offsets stand in the log."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.broker.coordinator.groups.state import group_log_format as log_format
from quorate.broker.coordinator.groups.state.committed_offsets import (
    CommittedOffset,
    CommittedOffsets,
)
from quorate.broker.coordinator.groups.state.group_log_format import StoredGroup, StoredMember
from quorate.broker.coordinator.shards.coordinator_records import UnknownRecord
from quorate.common.types import TopicPartition

TP = TopicPartition("orders", 3)
DAY_MS = 86_400_000


@pytest.fixture
def offsets() -> CommittedOffsets:
    return CommittedOffsets()


def test_what_stands_last_in_the_log_counts_whatever_is_reported_last(
    offsets: CommittedOffsets,
) -> None:
    offsets.record(TP, CommittedOffset(20), place=8)
    offsets.record(TP, CommittedOffset(10), place=7)
    assert offsets.get(TP) == CommittedOffset(20)
    offsets.forget(TP, place=7)
    assert offsets.get(TP) == CommittedOffset(20)
    offsets.forget(TP, place=9)
    assert offsets.get(TP) is None


def test_of_one_batch_the_later_commit_counts(offsets: CommittedOffsets) -> None:
    offsets.record(TP, CommittedOffset(10), place=7)
    offsets.record(TP, CommittedOffset(11), place=7)
    assert offsets.get(TP) == CommittedOffset(11)


def test_kip_211_offsets_outlive_their_group_by_the_retention(offsets: CommittedOffsets) -> None:
    offsets.record(TP, CommittedOffset(10, committed_ms=0), place=0)
    left_ms = 5 * DAY_MS
    assert not offsets.expired(left_ms + 7 * DAY_MS - 1, 7 * DAY_MS, unused_since_ms=left_ms)
    assert offsets.expired(left_ms + 7 * DAY_MS, 7 * DAY_MS, unused_since_ms=left_ms) == [TP]


def test_kip_211_members_keep_what_they_consume(offsets: CommittedOffsets) -> None:
    other = TopicPartition("payments", 0)
    offsets.record(TP, CommittedOffset(10, committed_ms=0), place=0)
    offsets.record(other, CommittedOffset(10, committed_ms=0), place=1)
    consumed = frozenset({"orders"})
    expired = offsets.expired(
        8 * DAY_MS, 7 * DAY_MS, unused_since_ms=None, consumed_topics=consumed
    )
    assert expired == [other]


def test_bytes_of_a_commit_are_kafkas() -> None:
    key = log_format.encode_offset_key("g", TopicPartition("t", 7))
    assert key == b"\x00\x01\x00\x01g\x00\x01t\x00\x00\x00\x07"
    value = log_format.encode_offset(CommittedOffset(5, 2, "m", 9))
    assert value.hex() == "0003" + "0000000000000005" + "00000002" + "00016d" + "0000000000000009"
    value = log_format.encode_offset(CommittedOffset(5, 2, "", 9))
    assert value.hex() == "0003" + "0000000000000005" + "00000002" + "0000" + "0000000000000009"


def test_bytes_of_a_group_are_kafkas() -> None:
    member = StoredMember("m", None, "c", "/h", 60, 10, b"s", b"a")
    group = StoredGroup("consumer", 4, "range", "m", 8, (member,))
    assert log_format.encode_group_key("g") == b"\x00\x02\x00\x01g"
    assert log_format.encode_group(group).hex() == (
        "0003" + "0008" + b"consumer".hex() + "00000004" + "0005" + b"range".hex() + "00016d"
        "0000000000000008" + "00000001"
        "00016d" + "ffff" + "000163" + "00022f68" + "0000003c" + "0000000a"
        "0000000173" + "0000000161"
    )  # fmt: skip


def test_older_values_are_read() -> None:
    first = bytes.fromhex("0001" + "0000000000000005" + "00016d" + "0000000000000009" + "00" * 8)
    assert log_format.decode_offset(first) == CommittedOffset(5, -1, "m", 9)
    group = bytes.fromhex("0000" + "000163" + "00000001" + "000172" + "00016d" + "00000001")
    member = bytes.fromhex("00016d" + "000163" + "000168" + "0000000a" + "00000000" * 2)
    assert log_format.decode_group(group + member) == StoredGroup(
        "c", 1, "r", "m", -1, (StoredMember("m", None, "c", "h", 10, 10, b"", b""),)
    )


@pytest.mark.parametrize(
    "key", [b"", b"\0", b"\0\3\0\1g", b"\0\1\0\1g\0\1t\0\0\0", b"\0\2\0\7group"]
)
def test_what_is_no_record_of_a_coordinator_is_said_to_be_none(key: bytes) -> None:
    with pytest.raises(UnknownRecord):
        log_format.decode_key(key)


def test_values_of_a_later_release_are_said_to_be_unknown() -> None:
    with pytest.raises(UnknownRecord, match="version 4"):
        log_format.decode_offset(b"\0\4" + bytes(30))
    with pytest.raises(UnknownRecord, match="version 9"):
        log_format.decode_group(b"\0\t" + bytes(30))


TEXT = st.text(max_size=20)
INT32 = st.integers(0, 2**31 - 1)
MEMBERS = st.builds(
    StoredMember, TEXT, TEXT | st.none(), TEXT, TEXT, INT32, INT32, st.binary(), st.binary()
)
GROUPS = st.builds(
    StoredGroup, TEXT, INT32, TEXT | st.none(), TEXT | st.none(), INT32, st.tuples(MEMBERS, MEMBERS)
)


@given(GROUPS)
def test_any_group_is_read_as_it_was_written(group: StoredGroup) -> None:
    assert log_format.decode_group(log_format.encode_group(group)) == group


@given(TEXT, TEXT, INT32, st.builds(CommittedOffset, INT32, INT32, TEXT, INT32))
def test_any_commit_is_read_as_it_was_written(
    group_id: str, topic: str, partition: int, commit: CommittedOffset
) -> None:
    tp = TopicPartition(topic, partition)
    key = log_format.encode_offset_key(group_id, tp)
    assert log_format.decode_key(key) == log_format.OffsetKey(group_id, tp)
    assert log_format.decode_offset(log_format.encode_offset(commit)) == commit
