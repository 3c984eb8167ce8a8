"""Machine code, Python and a reference decoder refuse the same records."""

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.records.readers import read_batch

from quorate.broker.log.record_walk import choice, layout
from quorate.broker.log.record_walk.choice import RecordWalk, is_compiled, record_walk
from quorate.broker.log.record_walk.code import CODE
from quorate.broker.log.record_walk.layout import RefusedRecord, WalkAnswer, WalkQuestion
from quorate.broker.log.record_walk.python_walk import PythonWalk
from tests.support.examples import examples
from tests.support.record_batches import Record, assemble, encode_batch, varint
from tests.support.reference_decoder import Refused, decoded

BASE = 1_700_000_000_000
ANY = WalkQuestion(
    size=0,
    record_count=0,
    base_timestamp=BASE,
    earliest=-(2**63),
    latest=2**63 - 1,
    needs_keys=0,
    steps=1 << 40,
)
LEAST_TIME, GREATEST_TIME = -62_135_596_800_000, 253_402_300_799_000
"""What kio can tell the time of."""

bytes_or_null = st.none() | st.binary(max_size=200)
headers = st.lists(st.tuples(st.text(max_size=9), bytes_or_null), max_size=3).map(tuple)


def numbered(found: list[Record]) -> list[Record]:
    return [
        Record(place, one.timestamp_ms, one.key, one.value, one.headers)
        for place, one in enumerate(found)
    ]


record_lists = st.lists(
    st.builds(
        Record,
        offset=st.just(0),
        timestamp_ms=st.integers(BASE - 10**9, BASE + 10**9),
        key=bytes_or_null,
        value=bytes_or_null,
        headers=headers,
    ),
    min_size=1,
    max_size=12,
).map(numbered)


@pytest.fixture(params=["machine code", "machine code, others run", "Python"])
def walk(request: pytest.FixtureRequest) -> RecordWalk:
    if request.param == "Python":
        return PythonWalk()
    assert is_compiled(), "the tests run where the machine code does"
    return record_walk(keeps_lock=request.param == "machine code")


def ask(walk: RecordWalk, records: bytes, count: int, **more: int) -> WalkAnswer:
    question = ANY._replace(size=len(records), record_count=count, **more)
    poisoned = memoryview(bytearray(b"\xff" * 7 + records + b"\x80" * 64))
    answer = walk(poisoned, 7, question)
    assert walk(memoryview(bytes(poisoned)), 7, question) == answer, "read-only memory"
    return answer


def body(records: list[Record]) -> bytes:
    return encode_batch(records)[61:]


def one(*fields: bytes) -> bytes:
    """A record of these fields after its attributes."""
    record = b"\0" + b"".join(fields)
    return varint(len(record)) + record


ZERO, NULL = varint(0), varint(-1)
OVERLONG = b"\x80\x80\x80\x80\x10"
"""A varint of 33 bits."""

MALFORMED: list[tuple[bytes, int, int]] = [
    (b"", 1, layout.FEWER_RECORDS),
    (one(ZERO, ZERO, NULL, NULL, ZERO), 2, layout.FEWER_RECORDS),
    (one(ZERO, ZERO, NULL, NULL, ZERO), 2**31 - 1, layout.FEWER_RECORDS),
    (one(ZERO, ZERO, NULL, NULL, ZERO) + b"\0", 1, layout.MORE_BYTES),
    (one(ZERO, ZERO, NULL, NULL, ZERO) * 2, 1, layout.MORE_BYTES),
    (varint(0), 1, layout.BAD_LENGTH),
    (varint(-3), 1, layout.BAD_LENGTH),
    (varint(7) + bytes(6), 1, layout.BAD_LENGTH),
    (varint(2**31 - 1), 1, layout.BAD_LENGTH),
    (b"\x80", 1, layout.BAD_LENGTH),
    (OVERLONG + bytes(9), 1, layout.BAD_LENGTH),
    (b"\xff" * 11, 1, layout.BAD_LENGTH),
    (varint(1) + b"\0", 1, layout.BAD_TIMESTAMP_DELTA),
    (one(b"\xff" * 9 + b"\x02", ZERO, NULL, NULL, ZERO), 1, layout.BAD_TIMESTAMP_DELTA),
    (one(b"\xff" * 10 + b"\x01", ZERO, NULL, NULL, ZERO), 1, layout.BAD_TIMESTAMP_DELTA),
    (one(ZERO), 1, layout.BAD_OFFSET_DELTA),
    (one(ZERO, varint(1), NULL, NULL, ZERO), 1, layout.BAD_OFFSET_DELTA),
    (one(ZERO, varint(-1), NULL, NULL, ZERO), 1, layout.BAD_OFFSET_DELTA),
    (one(ZERO, ZERO, NULL, NULL, ZERO) * 2, 2, layout.BAD_OFFSET_DELTA),
    (one(ZERO, ZERO), 1, layout.BAD_KEY),
    (one(ZERO, ZERO, varint(-2), NULL, ZERO), 1, layout.BAD_KEY),
    (one(ZERO, ZERO, varint(3), NULL, ZERO), 1, layout.BAD_KEY),
    (one(ZERO, ZERO, OVERLONG, NULL, ZERO), 1, layout.BAD_KEY),
    (one(ZERO, ZERO, NULL), 1, layout.BAD_VALUE),
    (one(ZERO, ZERO, NULL, varint(-2), ZERO), 1, layout.BAD_VALUE),
    (one(ZERO, ZERO, NULL, varint(2), ZERO), 1, layout.BAD_VALUE),
    (one(ZERO, ZERO, NULL, NULL), 1, layout.BAD_HEADERS),
    (one(ZERO, ZERO, NULL, NULL, varint(-1)), 1, layout.BAD_HEADERS),
    (one(ZERO, ZERO, NULL, NULL, varint(1)), 1, layout.BAD_HEADERS),
    (one(ZERO, ZERO, NULL, NULL, varint(2**31 - 1)), 1, layout.BAD_HEADERS),
    (one(ZERO, ZERO, NULL, NULL, varint(1), NULL, NULL), 1, layout.BAD_HEADERS),
    (one(ZERO, ZERO, NULL, NULL, varint(1), varint(2), NULL), 1, layout.BAD_HEADERS),
    (one(ZERO, ZERO, NULL, NULL, varint(1), ZERO, varint(-2)), 1, layout.BAD_HEADERS),
    (one(ZERO, ZERO, NULL, NULL, varint(1), ZERO, varint(1)), 1, layout.BAD_HEADERS),
    (one(ZERO, ZERO, NULL, NULL, varint(1), ZERO, b"\x80"), 1, layout.BAD_HEADERS),
    (one(ZERO, ZERO, NULL, NULL, ZERO, b"x"), 1, layout.WRONG_LENGTH),
    (one(ZERO, ZERO, NULL, NULL, varint(1), ZERO, NULL, b"x"), 1, layout.WRONG_LENGTH),
]


@pytest.mark.parametrize(("records", "count", "status"), MALFORMED)
def test_records_that_are_none(walk: RecordWalk, records: bytes, count: int, status: int) -> None:
    assert ask(walk, records, count).status == status
    with pytest.raises(Refused):
        decoded(records, count)


@pytest.mark.parametrize(
    "records",
    [
        one(ZERO, ZERO, NULL, NULL, ZERO),
        one(ZERO, ZERO, ZERO, ZERO, ZERO),
        one(b"\x80\x00", b"\x80\x80\x80\x80\x00", NULL, NULL, ZERO),
        one(ZERO, ZERO, varint(200), bytes(200), varint(100), bytes(100), ZERO),
        one(ZERO, ZERO, NULL, NULL, varint(2), varint(1), b"k", NULL, ZERO, varint(1), b"v"),
        b"\x8c\x00\0" + ZERO + ZERO + NULL + NULL + ZERO,
    ],
)
def test_records_that_are_some(walk: RecordWalk, records: bytes) -> None:
    """Varints may be longer than they must, as Kafka takes them."""
    assert ask(walk, records, 1).status == layout.OK
    assert len(decoded(records, 1)) == 1


def test_the_place_of_what_is_wrong_is_told(walk: RecordWalk) -> None:
    good = body([Record(0), Record(1)])
    answer = ask(walk, good + b"\x02\x00", 3)
    assert (answer.status, answer.record, answer.at) == (layout.BAD_TIMESTAMP_DELTA, 2, len(good))


def test_what_a_topic_does_not_take_is_listed(walk: RecordWalk) -> None:
    times = [BASE, BASE - 6, -1, BASE + 6, BASE + 5, BASE - 5, BASE]
    keys = [b"k", b"k", b"k", b"k", b"k", b"k", None]
    pairs = zip(times, keys, strict=True)
    records = [Record(n, time, key) for n, (time, key) in enumerate(pairs)]
    answer = ask(walk, body(records), 7, earliest=BASE - 5, latest=BASE + 5, needs_keys=1)
    assert answer.status == layout.OK
    assert answer.refused == [
        RefusedRecord(1, layout.TIMESTAMP_OUT_OF_RANGE, BASE - 6),
        RefusedRecord(3, layout.TIMESTAMP_OUT_OF_RANGE, BASE + 6),
        RefusedRecord(6, layout.NO_KEY, BASE),
    ]
    assert answer.refused_count == 3
    assert answer.greatest_timestamp == BASE + 6


def test_sums_of_more_than_64_bits_are_listed(walk: RecordWalk) -> None:
    records = one(varint(1), ZERO, NULL, NULL, ZERO)
    answer = ask(walk, records, 1, base_timestamp=2**63 - 1)
    assert answer.refused == [RefusedRecord(0, layout.TIMESTAMP_OVERFLOW, -(2**63))]
    answer = ask(walk, one(varint(-1), ZERO, NULL, NULL, ZERO), 1, base_timestamp=-(2**63))
    assert answer.refused == [RefusedRecord(0, layout.TIMESTAMP_OVERFLOW, 2**63 - 1)]
    assert not ask(walk, records, 1, base_timestamp=2**63 - 2).refused


def test_without_a_time_the_greatest_is_that_of_none(walk: RecordWalk) -> None:
    records = body([Record(0, timestamp_ms=-1), Record(1, timestamp_ms=-5)])
    assert ask(walk, records, 2, base_timestamp=-1).greatest_timestamp == -1


def test_more_than_can_be_listed_are_counted(walk: RecordWalk) -> None:
    count = layout.LISTED_MAX + 3
    answer = ask(walk, body([Record(n) for n in range(count)]), count, needs_keys=1)
    assert answer.refused_count == count
    assert [found.record for found in answer.refused] == list(range(layout.LISTED_MAX))
    assert ask(walk, body([Record(0)]), 1) == WalkAnswer(layout.OK, BASE, 0, 12, 0, [])


def test_the_steps_are_records_and_headers(walk: RecordWalk) -> None:
    records = body([Record(0), Record(1, headers=(("a", None), ("b", b"")))])
    assert ask(walk, records, 2, steps=4).status == layout.OK
    assert ask(walk, records, 2, steps=3).status == layout.UNFINISHED
    assert ask(walk, records, 2, steps=1).status == layout.UNFINISHED
    claimed = one(ZERO, ZERO, NULL, NULL, varint(2**31 - 1))
    assert ask(walk, claimed, 1, steps=4).status == layout.BAD_HEADERS, "there is no room for them"


def test_records_outside_the_buffer_are_not_walked_over() -> None:
    walk = record_walk(keeps_lock=True)
    for begin, size in ((0, 11), (5, 6), (-1, 5), (0, -1)):
        with pytest.raises(ValueError, match="are not in"):
            walk(memoryview(bytearray(10)), begin, ANY._replace(size=size, record_count=1))


@given(record_lists)
def test_what_producers_send_is_taken(records: list[Record]) -> None:
    for walk in (record_walk(keeps_lock=True), PythonWalk()):
        answer = ask(walk, body(records), len(records), base_timestamp=records[0].timestamp_ms)
        assert answer.status == layout.OK
        assert not answer.refused
        assert answer.greatest_timestamp == max(record.timestamp_ms for record in records)


mutations = st.lists(
    st.tuples(st.sampled_from(["set", "flip", "insert", "cut", "repeat"]), st.randoms()),
    min_size=1,
    max_size=4,
)


def mutated(data: bytes, how: list[tuple[str, random.Random]]) -> bytes:
    changed = bytearray(data)
    for kind, chance in how:
        at = chance.randrange(len(changed) + 1)
        if kind == "set":
            changed[at : at + 1] = bytes([chance.choice((0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF))])
        elif kind == "flip" and at < len(changed):
            changed[at] ^= 1 << chance.randrange(8)
        elif kind == "insert":
            changed[at:at] = chance.randbytes(chance.randrange(4))
        elif kind == "cut":
            del changed[at : at + chance.randrange(4)]
        else:
            changed[at:at] = changed[max(0, at - chance.randrange(20)) : at]
    return bytes(changed)


@settings(max_examples=examples(50))
@given(record_lists, mutations, st.integers(-1, 1))
def test_what_is_changed_is_refused_if_the_reference_refuses(
    records: list[Record], how: list[tuple[str, random.Random]], more: int
) -> None:
    changed, count = mutated(body(records), how), max(1, len(records) + more)
    base = records[0].timestamp_ms
    limits = {"base_timestamp": base, "earliest": LEAST_TIME, "latest": GREATEST_TIME}
    answer = ask(record_walk(keeps_lock=True), changed, count, **limits)
    assert ask(PythonWalk(), changed, count, **limits) == answer
    taken = answer.status == layout.OK and not answer.refused
    try:
        times = [found[0] for found in decoded(changed, count, base_timestamp=base)]
    except Refused:
        assert not taken
    else:
        assert taken == all(LEAST_TIME <= time <= GREATEST_TIME for time in times)
    if taken:
        whole = assemble(
            changed, base_offset=0, last_delta=count - 1, count=count, base_timestamp=base,
            max_timestamp=2**62,
        )  # fmt: skip
        batch, size = read_batch(whole, 0)
        assert size == len(whole)
        assert [record.offset for record in batch.records] == list(range(count))


def test_thousands_of_changes_are_seen_alike_by_machine_code_and_python() -> None:
    chance = random.Random(16)
    sent = [
        body([Record(n, BASE + n, b"k", bytes(n * 9), (("h", None),) * (n % 3)) for n in range(c)])
        for c in (1, 2, 5, 20)
    ]
    machine, python = record_walk(keeps_lock=True), PythonWalk()
    statuses = set()
    for _ in range(8_000):
        kinds = chance.choices(["set", "flip", "insert", "cut", "repeat"], k=2)
        changed = mutated(chance.choice(sent), [(kind, chance) for kind in kinds])
        count = chance.choice((1, 2, 5, 20))
        answer = ask(machine, changed, count, needs_keys=1, latest=BASE + 3)
        assert ask(python, changed, count, needs_keys=1, latest=BASE + 3) == answer
        statuses.add(answer.status)
    assert statuses == set(range(layout.WRONG_LENGTH + 1)) - {layout.UNFINISHED}


XOR_EAX_EAX_RET = b"\x31\xc0\xc3"
MODULE = "quorate.broker.log.record_walk.machine_walk"
WITHOUT_MACHINE_CODE: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "another machine": lambda patch: patch.setattr(f"{MODULE}.CODE", {"pdp11": b""}),
    "another system": lambda patch: patch.setattr("platform.system", lambda: "Plan9"),
    "not permitted": lambda patch: patch.setattr(f"{MODULE}._mapped", _refuse),
    "wrong answers": lambda patch: patch.setattr(
        f"{MODULE}.CODE", dict.fromkeys(CODE, XOR_EAX_EAX_RET)
    ),
}


@pytest.mark.parametrize("why", list(WITHOUT_MACHINE_CODE))
def test_without_machine_code_python_walks(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, why: str
) -> None:
    WITHOUT_MACHINE_CODE[why](monkeypatch)
    choice._code.cache_clear()
    try:
        assert isinstance(record_walk(keeps_lock=True), PythonWalk)
        assert not is_compiled()
    finally:
        choice._code.cache_clear()
    assert "validated in Python" in caplog.text


def _refuse(_: bytes) -> int:
    raise OSError(1, "not permitted")
