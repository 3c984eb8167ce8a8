"""Records are decoded within bounds, whatever a producer wrote."""

import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.broker.console.views.record_view import (
    Aborted,
    Scan,
    hex_dump,
    preview,
    scan,
    shown_bytes,
)
from quorate.broker.log.batches.codecs import compress
from quorate.broker.log.batches.own_records import encoded_record
from quorate.broker.log.batches.record_batch import (
    CONTROL,
    TRANSACTIONAL,
    iterate_batches,
    own_batch,
    patched,
)
from quorate.broker.log.batches.records import signed_varint
from quorate.common.types import LeaderEpoch


def record(
    delta: int, key: bytes | None, value: bytes | None, *headers: tuple[bytes, bytes]
) -> bytes:
    def sized(data: bytes | None) -> bytes:
        return signed_varint(-1) if data is None else signed_varint(len(data)) + data

    body = b"\0" + signed_varint(0) + signed_varint(delta) + sized(key) + sized(value)
    body += signed_varint(len(headers)) + b"".join(sized(one) + sized(two) for one, two in headers)
    return signed_varint(len(body)) + body


def batch(base: int, *records: bytes, attributes: int = 0, producer_id: int = -1) -> bytes:
    plain = compress(attributes & 7, b"".join(records))
    made = own_batch(plain, len(records), 1_000, attributes=attributes, producer_id=producer_id)
    return patched(memoryview(made), base, LeaderEpoch(0))


def scanned(data: bytes, begin: int = 0, limit: int = 100, **options: object) -> Scan:
    aborted = options.pop("aborted", ())
    state = Scan(limit=limit, next_offset=begin, **options)  # type: ignore[arg-type]
    scan(state, data, aborted, "t-0")  # type: ignore[arg-type]
    return state


@pytest.mark.parametrize("codec", range(5))
def test_records_of_every_codec_with_their_headers(codec: int) -> None:
    data = batch(7, record(0, b"k", b"v", (b"h", b"1")), record(1, None, None), attributes=codec)
    state = scanned(data)
    assert [(one.offset, one.key, one.value) for one in state.found] == [
        (7, b"k", b"v"),
        (8, None, None),
    ]
    assert state.found[0].headers == (("h", b"1"),)
    assert state.found[0].timestamp_ms == 1_000
    assert state.next_offset == 9


def test_a_page_ends_within_a_batch_and_goes_on_there() -> None:
    data = batch(0, *(record(number, b"k", b"%d" % number) for number in range(10)))
    first = scanned(data, begin=2, limit=3)
    assert [one.offset for one in first.found] == [2, 3, 4]
    assert first.next_offset == 5
    assert [one.offset for one in scanned(data, begin=first.next_offset).found] == [5, 6, 7, 8, 9]


def test_a_search_looks_at_keys_and_says_how_many() -> None:
    data = batch(0, *(record(number, b"order-%d" % number, b"") for number in range(20)))
    state = scanned(data, key_part=b"r-1")
    assert [one.offset for one in state.found] == [1, *range(10, 20)]
    assert state.looked_at == 20


def _marker(base: int, kind: int, producer_id: int) -> bytes:
    made = record(0, struct.pack(">hh", 0, kind), b"\0\0\0\0\0\0")
    return batch(base, made, attributes=TRANSACTIONAL | CONTROL, producer_id=producer_id)


def test_aborted_records_are_hidden_unless_everything_is_asked_for() -> None:
    data = (
        batch(0, record(0, b"a", b""), attributes=TRANSACTIONAL, producer_id=5)
        + batch(1, record(0, b"b", b""), attributes=TRANSACTIONAL, producer_id=6)
        + _marker(2, 0, 5)
        + _marker(3, 1, 6)
        + batch(4, record(0, b"c", b""), attributes=TRANSACTIONAL, producer_id=5)
    )
    committed = scanned(data, aborted=[Aborted(5, 0)])
    assert [one.key for one in committed.found] == [b"b", b"c"]
    every = scanned(data, aborted=[Aborted(5, 0)], skip_aborted=False)
    assert [one.note for one in every.found] == [
        "transactional",
        "transactional",
        "abort marker",
        "commit marker",
        "transactional",
    ]


def test_records_that_cannot_be_decoded_are_named_and_skipped() -> None:
    bad = own_batch(b"\x20nonsense", 2, 0)
    good = batch(2, record(0, b"k", b"v"))
    state = scanned(bad + good)
    assert [one.offset for one in state.found] == [2]
    assert "offsets 0 to 1" in state.unreadable[0]


@given(st.binary(max_size=300))
def test_whatever_is_in_a_batch_is_decoded_or_named(noise: bytes) -> None:
    state = scanned(own_batch(noise, 3, 0))
    assert len(state.found) <= 3
    scanned(noise)


@given(st.binary(), st.sampled_from(["auto", "json", "text", "hex"]))
def test_any_bytes_have_a_form(data: bytes, wanted: str) -> None:
    shown = shown_bytes(data, wanted, most=64)
    assert shown.size == len(data)
    assert len(shown.text) < 2_000
    assert "\n" not in preview(data)


def test_bytes_are_shown_as_what_they_look_like() -> None:
    assert shown_bytes(b'{"a":[1]}').text == json.dumps({"a": [1]}, indent=2)
    assert shown_bytes(b"plain").form == "text"
    assert shown_bytes(b"\x80\x81").form == "hex"
    assert shown_bytes(None).form == "null"
    assert shown_bytes(b"").form == "empty"
    assert shown_bytes(b"[" * 100_000, most=200_000).form == "text", "too deep to be JSON"
    assert shown_bytes(b"12", "hex").text.startswith("000000  31 32")
    assert shown_bytes("é".encode() * 40, most=63).is_cut


def test_the_id_of_a_schema_is_told() -> None:
    assert shown_bytes(b"\0\0\0\0\x07" + b"\x80\x02\xff").schema_id == 7


def test_hex_has_what_is_printable_beside_it() -> None:
    assert hex_dump(b"AB\n") == "000000  41 42 0a" + " " * 41 + "AB."


def test_a_test_record_is_what_a_consumer_decodes() -> None:
    made = own_batch(encoded_record(0, b"k", b"v", [(b"a", b"b")]), 1, 5)
    assert len(list(iterate_batches(made, "t-0"))) == 1
    (found,) = scanned(made).found
    assert (found.key, found.value, found.headers) == (b"k", b"v", (("a", b"b"),))
