"""Which schemas records name, and which records name none."""

import threading
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.broker.common.errors import InvalidRecords, KafkaError
from quorate.broker.log.batches import schema_prefixes
from quorate.broker.log.batches.admission import AppendOrigin
from quorate.broker.log.batches.log_validator import IN_A_THREAD, LogValidator
from quorate.broker.log.batches.record_batch import HEADER_BYTES, Where
from quorate.broker.log.batches.schema_prefixes import NamedParts, SchemaNames
from quorate.broker.log.batches.topic_timestamps import AS_SENT
from quorate_proto.v1 import errors_pb2
from tests.support.record_batches import Record, encode_batch

VALUES = NamedParts(values=True)
BOTH = NamedParts(keys=True, values=True)


def named(schema_id: int, content: bytes = b"") -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + content


def looked_at(parts: NamedParts, *batches: list[Record]) -> SchemaNames:
    names = SchemaNames(parts)
    for batch in batches:
        placed = [replace(record, offset=place) for place, record in enumerate(batch)]
        encoded = memoryview(encode_batch(placed))
        names.look(encoded, HEADER_BYTES, len(batch), "orders-3")
    return names


def refused(names: SchemaNames, *unknown: int) -> list[tuple[int, str]]:
    found = names.refusal(unknown, "orders-3")
    assert isinstance(found, InvalidRecords)
    assert found.code == errors_pb2.INVALID_RECORD
    assert "orders-3" in found.message
    return [(one.place, one.message) for one in found.record_errors]


contents = st.none() | st.binary(max_size=300) | st.builds(named, st.integers(0, 2**32 - 1))
records = st.lists(
    st.builds(
        Record,
        st.just(0),
        timestamp_ms=st.integers(0, 2**41),
        key=contents,
        value=contents,
        headers=st.lists(st.tuples(st.text(max_size=3), contents), max_size=2).map(tuple),
    ),
    min_size=1,
    max_size=5,
)


@given(st.lists(records, min_size=1, max_size=3), st.booleans(), st.booleans())
def test_each_place_is_named_or_refused(
    batches: list[list[Record]], keys: bool, values: bool
) -> None:
    names = looked_at(NamedParts(keys, values), *batches)
    ids: dict[int, list[int]] = {}
    bad: list[int] = []
    for place, one in enumerate(record for batch in batches for record in batch):
        for content in [one.key] * keys + [one.value] * values:
            if content is None:
                continue
            if len(content) >= 5 and content[0] == 0:
                ids.setdefault(int.from_bytes(content[1:5], "big"), []).append(place)
            else:
                bad.append(place)
    assert names.ids == ids
    assert [place for place, _ in refused(names)] == bad if bad else names.refusal([], "t") is None


def test_a_refusal_says_what_is_wrong_with_each_record() -> None:
    batch = [
        Record(0, value=named(7)),
        Record(1, value=b""),
        Record(2, value=b"\0\0\0"),
        Record(3, value=b"{}"),
        Record(4, value=None),
        Record(5, key=b"k", value=named(8)),
    ]
    names = looked_at(VALUES, batch, [Record(0, value=named(8))])
    rest = "a zero byte and the id come first"
    assert refused(names, 8) == [
        (1, f"the value names no schema: it is empty; {rest}"),
        (2, f"the value names no schema: it has 3 bytes; {rest}"),
        (3, f"the value names no schema: it begins with byte 123; {rest}"),
        (5, "schema id 8 is not in the schema registry"),
        (6, "schema id 8 is not in the schema registry"),
    ]
    assert refused(looked_at(BOTH, batch))[-1][1].startswith("the key names no schema")


def test_a_refusal_lists_only_some_records() -> None:
    batch = [Record(n, value=b"" if n % 2 else named(1)) for n in range(1_500)]
    assert len(refused(looked_at(VALUES, batch), 1)) == schema_prefixes.LISTED_MAX


def test_very_many_records_of_one_request_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_prefixes, "RECORDS_MAX", 3)
    batch = [Record(n, value=named(1)) for n in range(4)]
    for batches in ([batch], [batch[:2], batch[:2]]):
        with pytest.raises(KafkaError, match="a request has 4 records") as raised:
            looked_at(VALUES, *batches)
        assert raised.value.code == errors_pb2.MESSAGE_TOO_LARGE
    assert looked_at(VALUES, batch[:3]).ids == {1: [0, 1, 2]}


def test_very_many_schemas_of_one_request_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_prefixes, "IDS_MAX", 2)
    batches = [[Record(0, value=named(schema_id))] for schema_id in range(4)]
    with pytest.raises(KafkaError, match="that name 3 schemas"):
        looked_at(VALUES, *batches)
    assert len(looked_at(VALUES, *batches[:3]).ids) == 3


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_only_the_batch_is_looked_at_and_not_the_buffer_that_it_lies_in(
    codec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch of one record must not cost as much as the largest one before it."""
    seen: list[int] = []
    look = SchemaNames.look

    def noted(self: SchemaNames, records: memoryview, begin: int, count: int, where: Where) -> None:
        seen.append(len(records) - begin)
        look(self, records, begin, count, where)

    monkeypatch.setattr(SchemaNames, "look", noted)
    large = encode_batch([Record(0, value=named(1, bytes(100_000)))], codec=codec)
    small = encode_batch([Record(0, value=named(1))], codec=codec)
    log: Any = SimpleNamespace(max_batch_bytes=1 << 20, needs_keys=False, storing=AS_SENT)
    LogValidator(IN_A_THREAD).validate(
        large + small, log, AppendOrigin.CLIENT, 0, "t-0", SchemaNames(VALUES)
    )
    assert seen[0] > 100_000
    assert seen[1] < 100


def test_other_threads_get_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[float] = []
    sleep, this_thread = time.sleep, threading.get_ident()

    def note_turn(seconds: float) -> None:
        if threading.get_ident() == this_thread:
            turns.append(seconds)
        else:
            sleep(seconds)

    monkeypatch.setattr(time, "sleep", note_turn)
    looked_at(VALUES, [Record(n, value=named(1)) for n in range(1_600)])
    assert turns == [0] * 4
