"""Kafka record batches v2 in plain Python: a reference to compare the compiled decoder with."""

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import cramjam
import crc32c

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20

_HEADER = struct.Struct(">qiibIhiqqqhii")


@dataclass(frozen=True)
class Record:
    """One record, as a producer hands it over and a reader gets it."""

    offset: int
    timestamp_ms: int = 1_700_000_000_000
    key: bytes | None = None
    value: bytes | None = b"value"
    headers: tuple[tuple[str, bytes | None], ...] = ()


def varint(value: int) -> bytes:
    """Kafka's zigzag varint of a signed 64-bit number."""
    raw = ((value << 1) ^ (value >> 63)) & 0xFFFF_FFFF_FFFF_FFFF
    encoded = bytearray()
    while raw > 0x7F:
        encoded.append(raw & 0x7F | 0x80)
        raw >>= 7
    encoded.append(raw)
    return bytes(encoded)


def encode_batch(
    records: Sequence[Record],
    *,
    codec: str = "none",
    attributes: int = 0,
    base_offset: int | None = None,
    last_offset: int | None = None,
    producer: tuple[int, int, int] = (-1, -1, -1),
) -> bytes:
    """One batch of ``records``, which are in order of offsets; compaction may have left gaps."""
    base = records[0].offset if base_offset is None else base_offset
    last = records[-1].offset if last_offset is None else last_offset
    base_timestamp = records[0].timestamp_ms if records else 0
    body = b"".join(_encode_record(record, base, base_timestamp) for record in records)
    return assemble(
        _COMPRESS[codec](body),
        base_offset=base,
        last_delta=last - base,
        count=len(records),
        attributes=attributes | CODECS[codec],
        base_timestamp=base_timestamp,
        max_timestamp=max((record.timestamp_ms for record in records), default=0),
        producer=producer,
    )


def assemble(
    body: bytes,
    *,
    base_offset: int,
    last_delta: int,
    count: int,
    attributes: int = 0,
    base_timestamp: int = 0,
    max_timestamp: int = 0,
    producer: tuple[int, int, int] = (-1, -1, -1),
) -> bytes:
    """A batch with a right length and checksum around any body whatsoever.

    ``producer``: its id, its epoch, and the sequence of the first record.
    """
    header = _HEADER.pack(
        base_offset, len(body) + 49, 0, 2, 0, attributes, last_delta,
        base_timestamp, max_timestamp, *producer, count,
    )  # fmt: skip
    batch = bytearray(header + body)
    struct.pack_into(">I", batch, 17, crc32c.crc32c(batch[21:]))
    return bytes(batch)


def plain_records(*values: bytes | None) -> bytes:
    """The records of a batch: without keys, all with the base timestamp."""
    return b"".join(
        _encode_record(Record(place, timestamp_ms=0, value=value), 0, 0)
        for place, value in enumerate(values)
    )


def filled_records(count: int, size: int, seed: int = 0) -> bytes:
    """``count`` records of ``size`` bytes together, or of the least that they take.

    The last one is as long as it takes, and its value repeats ``seed``.
    """
    others = plain_records(*[b""] * (count - 1))
    room = max(size - len(others), len(_filled(count - 1, None, b"")))
    for length in range(room, max(room - 24, -1), -1):
        value = (seed.to_bytes(8, "big") * (length // 8 + 1))[:length]
        for key in (None, b"k", b"kk"):
            last = _filled(count - 1, key, value)
            if len(last) == room:
                return others + last
    raise ValueError(f"no record has {room} bytes")


def _filled(offset: int, key: bytes | None, value: bytes) -> bytes:
    return _encode_record(Record(offset, timestamp_ms=0, key=key, value=value), 0, 0)


def xerial(body: bytes, block_bytes: int = 32 * 1024) -> bytes:
    """Snappy as the Java client frames it."""
    blocks = [
        bytes(cramjam.snappy.compress_raw(body[at : at + block_bytes]))
        for at in range(0, len(body), block_bytes)
    ]
    framed = b"".join(struct.pack(">i", len(block)) + block for block in blocks)
    return b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) + framed


def _encode_record(record: Record, base_offset: int, base_timestamp: int) -> bytes:
    body = b"".join(
        (
            b"\x00",
            varint(record.timestamp_ms - base_timestamp),
            varint(record.offset - base_offset),
            _sized(record.key),
            _sized(record.value),
            varint(len(record.headers)),
            *(_sized(key.encode()) + _sized(value) for key, value in record.headers),
        )
    )
    return varint(len(body)) + body


def _sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


_COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "none": bytes,
    "gzip": lambda body: bytes(cramjam.gzip.compress(body)),
    "snappy": xerial,
    "lz4": lambda body: bytes(cramjam.lz4.compress(body)),
    "zstd": lambda body: bytes(cramjam.zstd.compress(body)),
}
