"""Kafka's compression codecs: decompress the records of a batch, and compress them again.

Two codecs are framed here by hand, as Java's clients expect them, because ``cramjam`` has no such
setting: snappy in the framing of Java's snappy library (xerial), and LZ4 frames with independent
blocks. The output is bounded, because a few bytes of gzip can stand for gigabytes.
"""

import struct
from collections.abc import Callable, Mapping
from typing import Final

import cramjam

from quorate.broker.log.options import Records

NONE: Final = 0

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES: Final = 32 << 10
_BLOCK: Final = struct.Struct(">i")

_LZ4_HEADER: Final = bytes.fromhex("04224d18607073")
"""The magic number; then version 1 with independent blocks and no checksums (the batch has a
checksum); then a block size of 4 MiB; then the checksum of the two bytes before it."""
_LZ4_BLOCK_BYTES: Final = 4 << 20
_LZ4_PLAIN_BLOCK: Final = 1 << 31
"""A flag in the size of a block; it is set if the block is not compressed."""
_LZ4_END: Final = bytes(4)

_GUESS: Final = 8
"""The first output buffer is this many times as large as the input. It grows by the same factor
until the output fits."""
_LEAST_GUESS_BYTES: Final = 64 << 10
_TOO_SMALL: Final = "failed to write whole buffer"
"""The message of ``cramjam`` when the output buffer is too small."""


class UndecodableRecords(ValueError):
    """Records that do not match what their batch says. The CRC was right, so the producer wrote
    them that way."""


def decompress(codec: int, compressed: Records, max_bytes: int) -> bytes:
    """Return the records under ``codec`` (0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd).

    Raises:
        UndecodableRecords: unknown codec, damaged data, or more than ``max_bytes`` come out.
    """
    if codec == NONE:
        return bytes(compressed)
    try:
        if codec == _SNAPPY:
            return _decompress_snappy(compressed, max_bytes)
        inflate = _INFLATE.get(codec)
        if inflate is None:
            raise UndecodableRecords(f"compression type {codec} is unknown")
        return _within(inflate, compressed, max_bytes)
    except (cramjam.DecompressionError, ValueError, struct.error) as error:
        raise UndecodableRecords(str(error)) from error


def compress(codec: int, records: bytes) -> bytes:
    """Return ``records`` compressed by a codec that ``decompress`` knows."""
    return _COMPRESS[codec](records)


def _within(inflate: Callable[[Records, bytearray], int], data: Records, max_bytes: int) -> bytes:
    """Decompress into a buffer that grows until the output fits."""
    room = min(max_bytes, max(_GUESS * len(data), _LEAST_GUESS_BYTES))
    while True:
        out = bytearray(room)
        try:
            size = inflate(data, out)
        except cramjam.DecompressionError as error:
            if _TOO_SMALL not in str(error):
                raise
            if room >= max_bytes:
                raise UndecodableRecords(
                    f"{len(data)} bytes decompress to more than {max_bytes}"
                ) from error
            room = min(max_bytes, _GUESS * room)
        else:
            return bytes(memoryview(out)[:size])


def _decompress_snappy(data: Records, max_bytes: int) -> bytes:
    """Decompress raw snappy, or the framing of snappy-java: a header, then blocks with their
    lengths."""
    if data[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return _snappy_block(data, max_bytes)
    blocks: list[bytes] = []
    position = len(_XERIAL_HEADER)
    while position < len(data):
        (length,) = _BLOCK.unpack_from(data, position)
        position += _BLOCK.size
        if not 0 <= length <= len(data) - position:
            raise UndecodableRecords(f"a snappy block of {length} bytes at {position}")
        blocks.append(_snappy_block(data[position : position + length], max_bytes))
        max_bytes -= len(blocks[-1])
        position += length
    return b"".join(blocks)


def _snappy_block(block: Records, max_bytes: int) -> bytes:
    size = cramjam.snappy.decompress_raw_len(block)
    if size > max_bytes:
        raise UndecodableRecords(f"a snappy block decompresses to {size} bytes, too many")
    return bytes(cramjam.snappy.decompress_raw(block))


def _compress_snappy(records: bytes) -> bytes:
    view = memoryview(records)
    parts = [_XERIAL_HEADER]
    for at in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[at : at + _XERIAL_BLOCK_BYTES]))
        parts += (_BLOCK.pack(len(block)), block)
    return b"".join(parts)


def _compress_lz4(records: bytes) -> bytes:
    view = memoryview(records)
    parts: list[Records] = [_LZ4_HEADER]
    for at in range(0, len(view), _LZ4_BLOCK_BYTES):
        plain = view[at : at + _LZ4_BLOCK_BYTES]
        block = bytes(cramjam.lz4.compress_block(plain, store_size=False))
        if len(block) < len(plain):
            parts += (struct.pack("<I", len(block)), block)
        else:
            parts += (struct.pack("<I", len(plain) | _LZ4_PLAIN_BLOCK), plain)
    parts.append(_LZ4_END)
    return b"".join(parts)


_SNAPPY: Final = 2
_INFLATE: Final[Mapping[int, Callable[[Records, bytearray], int]]] = {
    1: cramjam.gzip.decompress_into,
    3: cramjam.lz4.decompress_into,
    4: cramjam.zstd.decompress_into,
}
_COMPRESS: Final[Mapping[int, Callable[[bytes], bytes]]] = {
    NONE: bytes,
    1: lambda records: bytes(cramjam.gzip.compress(records)),
    _SNAPPY: _compress_snappy,
    3: _compress_lz4,
    4: lambda records: bytes(cramjam.zstd.compress(records)),
}
