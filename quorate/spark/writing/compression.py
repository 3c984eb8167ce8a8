"""Compresses records as Java's clients expect them.

Two codecs are framed here by hand. Snappy has the framing of Java's snappy library (xerial). LZ4
frames must have independent blocks: Kafka's Java client insists on that, and ``cramjam`` has no
setting for it.
"""

import struct
from collections.abc import Callable, Mapping
from typing import Final

import cramjam

Bytes = bytes | memoryview

_XERIAL_HEADER: Final = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES: Final = 32 << 10

_LZ4_HEADER: Final = bytes.fromhex("04224d18607073")
"""The magic number; then version 1, independent blocks and no checksums (the batch has one); blocks
of 4 MiB; and the checksum of the two bytes before it."""
_LZ4_BLOCK_BYTES: Final = 4 << 20
_LZ4_PLAIN_BLOCK: Final = 1 << 31
"""The bit that is set in the size of a block that is not compressed."""
_LZ4_END: Final = bytes(4)


def _snappy(records: memoryview) -> bytes:
    parts = [_XERIAL_HEADER]
    for at in range(0, len(records), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(records[at : at + _XERIAL_BLOCK_BYTES]))
        parts += (struct.pack(">i", len(block)), block)
    return b"".join(parts)


def _lz4(records: memoryview) -> bytes:
    parts: list[Bytes] = [_LZ4_HEADER]
    for at in range(0, len(records), _LZ4_BLOCK_BYTES):
        plain = records[at : at + _LZ4_BLOCK_BYTES]
        block = bytes(cramjam.lz4.compress_block(plain, store_size=False))
        if len(block) < len(plain):
            parts += (struct.pack("<I", len(block)), block)
        else:
            parts += (struct.pack("<I", len(plain) | _LZ4_PLAIN_BLOCK), plain)
    parts.append(_LZ4_END)
    return b"".join(parts)


_CODECS: Final[Mapping[str, tuple[int, Callable[[memoryview], Bytes]]]] = {
    "gzip": (1, lambda records: bytes(cramjam.gzip.compress(records))),
    "snappy": (2, _snappy),
    "lz4": (3, _lz4),
    "zstd": (4, lambda records: bytes(cramjam.zstd.compress(records))),
}


def compress(name: str, records: memoryview) -> tuple[int, Bytes]:
    """Return the number of the codec for the batch's attributes, and the compressed records.

    Records that the codec does not make smaller stay as they are, with number 0, so compression
    never makes a batch larger.
    """
    if name == "none":
        return 0, records
    number, codec = _CODECS[name]
    compressed = codec(records)
    return (number, compressed) if len(compressed) < len(records) else (0, records)
