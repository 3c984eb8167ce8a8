"""The records of consumer groups are Kafka's, byte by byte.

The bytes were written by Kafka 4.3.1's ``GroupCoordinatorRecordSerde``.
"""

from typing import Final

import pytest

from quorate.broker.coordinator.groups.consumer import consumer_log_format as log_format
from quorate.broker.coordinator.groups.consumer.consumer_log_format import (
    ConsumerGroupKey,
    GroupEpoch,
    SubscribedTopics,
    TargetEpoch,
)
from quorate.broker.coordinator.groups.consumer.consumer_member import (
    ClassicMetadata,
    CurrentAssignment,
    MemberMetadata,
    MemberState,
)
from quorate.broker.coordinator.groups.consumer.regular_expressions import ResolvedRegex
from quorate.broker.coordinator.shards.coordinator_records import LogRecord, UnknownRecord
from quorate.common.types import TopicId

TOPIC: Final = TopicId(bytes(range(1, 17)))
TOPIC_HEX: Final = TOPIC.hex()

EPOCH: Final = GroupEpoch(7, -5)
METADATA: Final = MemberMetadata(
    "i", None, "c", "/h", frozenset({"a", "b"}), "x.*", 60_000, "range"
)
CLASSIC: Final = MemberMetadata(
    "i",
    None,
    "c",
    "/h",
    frozenset({"a", "b"}),
    "",
    60_000,
    None,
    ClassicMetadata(45_000, (("range", b"\1\2\3"),)),
)
TARGET_EPOCH: Final = TargetEpoch(7, 1_000)
TARGET: Final = {TOPIC: frozenset({0, 300})}
CURRENT: Final = CurrentAssignment(
    7, 6, MemberState.UNREVOKED_PARTITIONS, {TOPIC: {0: 5, 1: 7}}, {TOPIC: {2: 4}}
)
REGEX: Final = ResolvedRegex(frozenset({"x1", "x2"}), 9, 1_000)

WRITTEN: Final[list[tuple[LogRecord, str, str, ConsumerGroupKey, object]]] = [
    (
        log_format.group_record("g", EPOCH),
        "0003000167",
        "000000000007010008fffffffffffffffb",
        ConsumerGroupKey(3, "g"),
        EPOCH,
    ),
    (
        log_format.member_record("g", "m", METADATA),
        "000500016700016d",
        "00000269000263032f68030261026204782e2a0000ea600672616e676500",
        ConsumerGroupKey(5, "g", "m"),
        METADATA,
    ),
    (
        log_format.member_record("g", "m", CLASSIC),
        "000500016700016d",
        "00000269000263032f680302610262010000ea6000010012010000afc8020672616e6765040102030000",
        ConsumerGroupKey(5, "g", "m"),
        CLASSIC,
    ),
    (
        log_format.target_epoch_record("g", TARGET_EPOCH),
        "0006000167",
        "00000000000701000800000000000003e8",
        ConsumerGroupKey(6, "g"),
        TARGET_EPOCH,
    ),
    (
        log_format.target_record("g", "m", TARGET),
        "000700016700016d",
        f"000002{TOPIC_HEX}03000000000000012c0000",
        ConsumerGroupKey(7, "g", "m"),
        TARGET,
    ),
    (
        log_format.current_record("g", "m", CURRENT),
        "000800016700016d",
        f"000000000007000000060102{TOPIC_HEX}030000000000000001010009030000000500000007"
        f"02{TOPIC_HEX}0200000002010005020000000400",
        ConsumerGroupKey(8, "g", "m"),
        CURRENT,
    ),
    (
        log_format.regex_record("g", "x.*", REGEX),
        "00100001670003782e2a",
        "000003037831037832000000000000000900000000000003e800",
        ConsumerGroupKey(16, "g", "x.*"),
        REGEX,
    ),
]


@pytest.mark.parametrize(("record", "key_hex", "value_hex", "key", "value"), WRITTEN)
def test_records_are_kafkas(
    record: LogRecord, key_hex: str, value_hex: str, key: ConsumerGroupKey, value: object
) -> None:
    assert record == LogRecord(bytes.fromhex(key_hex), bytes.fromhex(value_hex))
    assert log_format.is_of_consumer_group(record.key)
    assert log_format.read_key(record.key) == key
    assert log_format.read_value(key.kind, bytes.fromhex(value_hex)) == value


def test_partitions_of_earlier_kafkas_have_no_epochs() -> None:
    value = f"000000000007000000060002{TOPIC_HEX}030000000000000001000100"
    assert log_format.read_value(8, bytes.fromhex(value)) == CurrentAssignment(
        7, 6, MemberState.STABLE, {TOPIC: {0: 7, 1: 7}}, {}
    )


def test_topics_that_kafka_4_0_wrote_are_not_read() -> None:
    assert log_format.read_value(4, bytes.fromhex("00000100")) == SubscribedTopics()


@pytest.mark.parametrize(("record", "_key_hex", "value_hex", "key", "_value"), WRITTEN)
def test_records_that_are_cut_off_are_passed_over(
    record: LogRecord, _key_hex: str, value_hex: str, key: ConsumerGroupKey, _value: object
) -> None:
    value = bytes.fromhex(value_hex)
    for end in range(2, len(value)):
        with pytest.raises(UnknownRecord):
            log_format.read_value(key.kind, value[:end])
    with pytest.raises(UnknownRecord):
        log_format.read_value(key.kind, b"\0\1" + value[2:])
    with pytest.raises(UnknownRecord):
        log_format.read_key(record.key[:-1])


def test_a_member_in_a_state_of_later_kafkas_is_passed_over() -> None:
    value = bytes.fromhex("0000000000070000000663010100")
    with pytest.raises(UnknownRecord, match="state 99"):
        log_format.read_value(8, value)
