"""What dead letters consist of, where they go, and which records they copy (KIP-1191)."""

from typing import NamedTuple

import pytest

from quorate.broker.coordinator.share.dead_letters.dead_letter_batch import (
    BATCH_BYTES,
    NOTHING,
    Content,
    DeadLetterBatch,
    Source,
    headers_of,
)
from quorate.broker.coordinator.share.dead_letters.dead_letter_place import (
    Absent,
    DeadLetterSettings,
    Misconfigured,
    Place,
    place_of,
)
from quorate.broker.coordinator.share.dead_letters.source_records import PLAIN_BYTES_MAX, decoded
from quorate.broker.coordinator.share.state.dead_records import DeadRecords, DeathReason
from quorate.broker.log.batches.record_batch import own_batch
from quorate.broker.log.batches.records import signed_varint
from quorate.common.types import BrokerId, TopicId, TopicPartition
from tests.support.metadata import topic_id_of
from tests.support.record_batches import CODECS, CONTROL, Record, encode_batch

SOURCE = Source("workers", TopicPartition("jobs", 3), topic_id_of("jobs"), 7)
DEAD = DeadRecords(40, 49, 5, DeathReason.DELIVERED_TOO_OFTEN)
LIMIT = 1 << 20


def contents(batch: DeadLetterBatch) -> list[Content]:
    found = decoded([batch.encoded(1_000)], 0, batch.count).contents
    return [found[at] for at in range(batch.count)]


def test_kip_1191_headers_say_where_the_record_is_and_why_it_is_dead() -> None:
    batch = DeadLetterBatch(LIMIT)
    assert batch.add(headers_of(SOURCE, DEAD, 42), NOTHING)
    (letter,) = contents(batch)
    assert (letter.key, letter.value) == (None, None)
    assert dict(letter.headers) == {
        b"__dlq.errors.topic": b"jobs",
        b"__dlq.errors.partition": b"3",
        b"__dlq.errors.offset": b"42",
        b"__dlq.errors.group": b"workers",
        b"__dlq.errors.delivery.count": b"5",
        b"__dlq.errors.message": b"Offset delivery count exceeded the threshold.",
    }


def test_kip_1191_a_copy_has_all_of_the_record_and_only_the_brokers_word_on_its_origin() -> None:
    batch = DeadLetterBatch(LIMIT)
    record = Content(
        b"k", b"v", ((b"trace", b"1"), (b"__dlq.errors.topic", b"payroll"), (b"n", None))
    )
    batch.add(headers_of(SOURCE, DEAD, 42), record)
    (letter,) = contents(batch)
    assert (letter.key, letter.value) == (b"k", b"v")
    assert letter.headers[:2] == ((b"trace", b"1"), (b"n", None))
    assert [data for name, data in letter.headers if name == b"__dlq.errors.topic"] == [b"jobs"]


def test_kip_1191_a_batch_is_complete_at_its_size() -> None:
    batch = DeadLetterBatch(LIMIT)
    large = Content(value=bytes(BATCH_BYTES // 2))
    assert batch.add((), large)
    assert not batch.add((), large)
    assert batch.count == 1
    assert batch.add((), NOTHING)


def test_kip_1191_a_record_that_the_topic_does_not_take_leaves_its_content_behind() -> None:
    batch = DeadLetterBatch(2_000)
    headers = headers_of(SOURCE, DEAD, 42)
    assert batch.add(headers, Content(b"k", bytes(3_000)))
    (letter,) = contents(batch)
    assert (letter.key, letter.value) == (None, None)
    assert letter.headers == headers
    assert len(batch.encoded(0)) <= 2_000


def test_kip_1191_a_record_beyond_the_size_of_batches_has_one_to_itself() -> None:
    batch = DeadLetterBatch(LIMIT)
    assert batch.add((), Content(value=bytes(BATCH_BYTES + 1)))
    assert not batch.add((), NOTHING)
    assert len(contents(batch)[0].value or b"") == BATCH_BYTES + 1


@pytest.mark.parametrize("codec", CODECS)
def test_kip_1191_records_are_found_whatever_their_compression(codec: str) -> None:
    headers: tuple[tuple[str, bytes | None], ...] = (("a", b"1"), ("b", None))
    records = [Record(at, key=b"k%d" % at, value=b"v", headers=headers) for at in range(10, 20)]
    found = decoded([encode_batch(records, codec=codec)], 12, 14)
    assert found.last == 14
    assert sorted(found.contents) == [12, 13, 14]
    assert found.contents[13] == Content(b"k13", b"v", ((b"a", b"1"), (b"b", None)))


def test_kip_1191_offsets_without_records_have_no_content() -> None:
    records = [Record(10), Record(12, key=None, value=None)]
    marker = encode_batch([Record(13, key=b"\0\0\0\0")], attributes=CONTROL)
    found = decoded([encode_batch(records), marker], 10, 20)
    assert found.last == 13
    assert found.contents == {10: Content(None, b"value"), 12: Content(None, None)}


def test_kip_1191_a_batch_that_cannot_be_decoded_has_no_content() -> None:
    bad = encode_batch([Record(0, headers=(("a", b"1"),))]).replace(b"\x02a\x02", b"\xffa\x02")
    found = decoded([bad, encode_batch([Record(1)])], 0, 1)
    assert found.last == 1
    assert sorted(found.contents) == [1]


def test_kip_1191_a_record_with_fewer_headers_than_it_says_has_no_content() -> None:
    body = b"\0\0\0\1\1\2"  # No key, no value, and one header, which is not there.
    records = signed_varint(len(body)) + body
    found = decoded([own_batch(records, 1, 0), encode_batch([Record(1)])], 0, 1)
    assert found.last == 1
    assert sorted(found.contents) == [1]


def test_kip_1191_what_few_bytes_decompress_to_is_bounded() -> None:
    large = bytes(PLAIN_BYTES_MAX // 2)
    batches = [encode_batch([Record(at, value=large)], codec="zstd") for at in range(6)]
    found = decoded(batches, 0, 5)
    assert found.last == 1
    assert sorted(found.contents) == [0, 1]
    assert sorted(decoded(batches[2:], 2, 5).contents) == [2, 3]


# -- where they go ---------------------------------------------------------------------------------


class Led(NamedTuple):
    leader: BrokerId


class Topic(NamedTuple):
    topic_id: TopicId
    partitions: tuple[Led, ...]


TOPIC = Topic(topic_id_of("dlq.jobs"), (Led(BrokerId(1)), Led(BrokerId(2))))
SETTINGS = DeadLetterSettings(
    "dlq.jobs", "dlq.", creates=False, existing=TOPIC, is_enabled=True, batch_bytes_max=LIMIT
)


def test_kip_1191_partitions_are_dealt_in_turn() -> None:
    places = [place_of(SETTINGS, number) for number in range(3)]
    assert places == [
        Place(
            TopicPartition("dlq.jobs", number % 2), TOPIC.topic_id, BrokerId(1 + number % 2), LIMIT
        )
        for number in range(3)
    ]


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        (SETTINGS._replace(topic="jobs-dead"), "does not begin with 'dlq.'"),
        (SETTINGS._replace(topic="__consumer_offsets", prefix=""), "as internal topics do"),
        (SETTINGS._replace(existing=None), "does not exist"),
        (SETTINGS._replace(is_enabled=False), "takes no dead letters"),
        (SETTINGS._replace(topic="jobs-dead", existing=None, creates=True), "does not begin with"),
    ],
)
def test_kip_1191_what_is_misconfigured_is_named(settings: DeadLetterSettings, why: str) -> None:
    found = place_of(settings, 0)
    assert isinstance(found, Misconfigured)
    assert why in found.why


def test_kip_1191_a_topic_may_be_created_and_a_prefix_may_be_empty() -> None:
    absent = SETTINGS._replace(existing=None, creates=True)
    assert place_of(absent, 0) == Absent("dlq.jobs")
    assert isinstance(place_of(SETTINGS._replace(topic="jobs-dead", prefix=""), 0), Place)
