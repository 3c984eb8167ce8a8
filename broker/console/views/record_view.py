"""Records as people read them: decoded from batches, with bounds on time and memory. Pure.

A producer wrote the bytes, so nothing in them is trusted: lengths are checked, compressed batches
may grow to a limit only, and what cannot be decoded is said so and skipped.
"""

import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from quorate.broker.common.errors import KafkaError
from quorate.broker.log.batches.codecs import UndecodableRecords
from quorate.broker.log.batches.record_batch import Batch, BatchHeader, iterate_batches
from quorate.broker.log.batches.records import plain_records, walk

BATCH_BYTES_MAX: Final = 16 << 20
"""The most bytes of the records of one batch. A larger batch is not shown."""

HEADERS_MAX: Final = 100
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")

_CONTROL_KEY: Final = struct.Struct(">hh")
_ABORT: Final = 0
_MARKERS: Final = {0: "abort marker", 1: "commit marker"}


@dataclass(frozen=True, slots=True)
class ShownRecord:
    """One record. ``note`` says what is special about it."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()
    note: str = ""
    codec: str = "none"
    producer_id: int = -1


@dataclass(slots=True)
class Scan:
    """What a search has found so far, and how far it is."""

    limit: int
    next_offset: int
    key_part: bytes = b""
    skip_aborted: bool = True
    found: list[ShownRecord] = field(default_factory=list)
    looked_at: int = 0
    unreadable: list[str] = field(default_factory=list)

    @property
    def is_full(self) -> bool:
        return len(self.found) >= self.limit


class Aborted(NamedTuple):
    """An aborted transaction, as a Fetch response names it (KIP-98)."""

    producer_id: int
    first_offset: int


def scan(state: Scan, data: bytes | memoryview, aborted: Sequence[Aborted], where: str) -> None:
    """Look at the batches of one Fetch response, and go on behind them.

    It takes time in proportion to the bytes, so call it outside of the event loop.
    """
    hidden = _Aborts(aborted) if state.skip_aborted else None
    try:
        for batch in iterate_batches(data, where):
            if batch.header.last_offset < state.next_offset:
                continue
            if not _scan_batch(state, batch, hidden):
                return
            state.next_offset = batch.header.last_offset + 1
    except KafkaError as error:
        if not state.looked_at and not state.found:
            state.unreadable.append(error.message)


def _scan_batch(state: Scan, batch: Batch, hidden: "_Aborts | None") -> bool:
    """Look at the records of a batch. Return False if the search is over within it."""
    header = batch.header
    if hidden is not None and hidden.hides(header, batch):
        return True
    try:
        for record in records_of(batch):
            if record.offset < state.next_offset:
                continue
            state.looked_at += 1
            if not state.key_part or state.key_part in (record.key or b""):
                state.found.append(record)
                if state.is_full:
                    state.next_offset = record.offset + 1
                    return False
    except UndecodableRecords as error:
        state.unreadable.append(f"offsets {header.base_offset} to {header.last_offset}: {error}")
    return True


class _Aborts:
    """Tells which batches belong to aborted transactions, while they are read in order."""

    def __init__(self, aborted: Sequence[Aborted]) -> None:
        self._waiting = sorted(aborted, key=lambda one: -one.first_offset)
        self._open: set[int] = set()

    def hides(self, header: BatchHeader, batch: Batch) -> bool:
        """Return whether a consumer that reads committed records does not see the batch."""
        while self._waiting and self._waiting[-1].first_offset <= header.last_offset:
            self._open.add(self._waiting.pop().producer_id)
        if header.is_control:
            if _marker_of(batch) == _ABORT:
                self._open.discard(header.producer_id)
            return True
        return header.is_transactional and header.producer_id in self._open


def _marker_of(batch: Batch) -> int | None:
    try:
        key = next(records_of(batch)).key or b""
    except (UndecodableRecords, StopIteration):
        return None
    return int(_CONTROL_KEY.unpack_from(key)[1]) if len(key) >= _CONTROL_KEY.size else None


def records_of(batch: Batch) -> Iterator[ShownRecord]:
    """Yield the records of a batch.

    Raises:
        UndecodableRecords: they are not what the header says, or more than ``BATCH_BYTES_MAX``.
    """
    header = batch.header
    plain = plain_records(header, batch.data, BATCH_BYTES_MAX)
    codec = CODECS[header.compression] if header.compression < len(CODECS) else "unknown"
    for _, _, end, timestamp_delta, offset_delta, key_at, key_length, _ in walk(
        plain, header.record_count
    ):
        key = bytes(plain[key_at : key_at + key_length]) if key_length >= 0 else None
        reader = _Fields(plain, key_at + max(key_length, 0), end)
        value = reader.data()
        timestamp_ms = (
            header.max_timestamp
            if header.is_log_append_time
            else header.base_timestamp + timestamp_delta
        )
        yield ShownRecord(
            header.base_offset + offset_delta,
            timestamp_ms,
            key,
            value,
            reader.headers(),
            _note(header, key),
            codec,
            header.producer_id,
        )


def _note(header: BatchHeader, key: bytes | None) -> str:
    if header.is_control:
        kind = _CONTROL_KEY.unpack_from(key)[1] if key and len(key) >= _CONTROL_KEY.size else -1
        return _MARKERS.get(kind, "control record")
    return "transactional" if header.is_transactional else ""


class _Fields:
    """Reads value and headers of one record, within its bounds."""

    def __init__(self, data: bytes, at: int, end: int) -> None:
        self._data = data
        self._at = at
        self._end = end

    def data(self) -> bytes | None:
        length = self._varint()
        if length < 0:
            return None
        if self._at + length > self._end:
            raise UndecodableRecords(f"a field of {length} bytes goes beyond its record")
        begin, self._at = self._at, self._at + length
        return bytes(self._data[begin : self._at])

    def headers(self) -> tuple[tuple[str, bytes | None], ...]:
        count = self._varint()
        found = []
        for _ in range(min(count, HEADERS_MAX)):
            name = (self.data() or b"").decode(errors="replace")
            found.append((name, self.data()))
        return tuple(found)

    def _varint(self) -> int:
        value = shift = 0
        while self._at < self._end and shift < 64:
            byte = self._data[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
            shift += 7
        raise UndecodableRecords("a varint goes beyond its record")


# -- bytes as text -------------------------------------------------------------------------------

TEXT_MAX: Final = 16 << 10
"""The most bytes of one value that a page shows."""

HEX_ROW: Final = 16
_SCHEMA_HEADER: Final = struct.Struct(">bi")


class ShownBytes(NamedTuple):
    """Bytes in a form for people. ``form`` is null, empty, json, text or hex."""

    form: str
    text: str
    size: int
    is_cut: bool = False
    schema_id: int | None = None
    """The id of a schema, if the bytes begin as Confluent's serializers begin them."""


def shown_bytes(data: bytes | None, wanted: str = "auto", most: int = TEXT_MAX) -> ShownBytes:
    """Return bytes as JSON if they are JSON, as text if they are UTF-8, and else as hex.

    ``wanted`` asks for one form. What is not JSON or text falls back to the next.
    """
    if data is None:
        return ShownBytes("null", "null", 0)
    if not data:
        return ShownBytes("empty", "", 0)
    cut, is_cut = data[:most], len(data) > most
    schema_id = _schema_id(data)
    if wanted in ("auto", "json") and not is_cut and (pretty := _json(cut)) is not None:
        return ShownBytes("json", pretty, len(data))
    if (
        wanted != "hex"
        and (plain := _plain(cut, is_cut=is_cut, is_asked=wanted == "text")) is not None
    ):
        return ShownBytes("text", plain, len(data), is_cut)
    return ShownBytes("hex", hex_dump(cut), len(data), is_cut, schema_id)


def _json(data: bytes) -> str | None:
    if data[:1] not in b'{["-0123456789tfn' or not data[:1]:
        return None
    try:
        return json.dumps(json.loads(data), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return None


def _plain(data: bytes, *, is_cut: bool, is_asked: bool) -> str | None:
    try:
        decoded = data.decode()
    except UnicodeDecodeError as error:
        if is_cut and error.start >= len(data) - 4:
            return data[: error.start].decode()
        return data.decode(errors="replace") if is_asked else None
    printable = sum(one.isprintable() or one in "\n\r\t" for one in decoded)
    return decoded if is_asked or printable >= 0.9 * len(decoded) else None


def hex_dump(data: bytes) -> str:
    """Return rows of 16 bytes: place, hex, and what is printable."""
    rows = []
    for at in range(0, len(data), HEX_ROW):
        row = data[at : at + HEX_ROW]
        shown = "".join(chr(one) if 32 <= one < 127 else "." for one in row)
        rows.append(f"{at:06x}  {row.hex(' '):<47}  {shown}")
    return "\n".join(rows)


def _schema_id(data: bytes) -> int | None:
    if len(data) <= _SCHEMA_HEADER.size:
        return None
    magic, schema_id = _SCHEMA_HEADER.unpack_from(data)
    return schema_id if magic == 0 and 0 < schema_id < 10_000_000 else None


def preview(data: bytes | None, most: int = 160) -> str:
    """Return bytes on one line, cut."""
    if data is None:
        return "null"
    cut = data[: 4 * most]
    try:
        shown = cut.decode(errors="strict" if len(cut) == len(data) else "ignore")
    except UnicodeDecodeError:
        shown = ""
    if not shown or sum(map(str.isprintable, shown)) < 0.8 * len(shown):
        shown = cut[: most // 3].hex(" ")
    one_line = " ".join(shown.split())
    return one_line if len(one_line) <= most else f"{one_line[:most]}…"


def as_query(values: Mapping[str, str]) -> dict[str, str]:
    """Return the values of a query that are not empty."""
    return {name: value for name, value in values.items() if value}
