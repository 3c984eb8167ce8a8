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


class DoesNotFit(Exception):
    """The decompressed records are larger than the buffer for them."""


def decompress(codec: int, compressed: Records, max_bytes: int) -> bytes:
    """Return the records under ``codec`` (0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd).

    Raises:
        UndecodableRecords: unknown codec, damaged data, or more than ``max_bytes`` come out.
    """
    if codec == NONE:
        return bytes(compressed)
    room = min(max_bytes, max(_GUESS * len(compressed), _LEAST_GUESS_BYTES))
    while True:
        out = memoryview(bytearray(room))
        try:
            return bytes(out[: decompress_into(codec, compressed, out)])
        except DoesNotFit as error:
            if room >= max_bytes:
                raise UndecodableRecords(
                    f"{len(compressed)} bytes decompress to more than {max_bytes}"
                ) from error
            room = min(max_bytes, _GUESS * room)


def decompress_into(codec: int, compressed: Records, out: memoryview) -> int:
    """Decompress into a buffer, and return how many of its bytes are used. ``codec`` is not 0.

    Raises:
        UndecodableRecords: unknown codec or damaged data.
        DoesNotFit: more comes out. The content of the buffer is undefined then.
    """
    inflate = _INFLATE.get(codec)
    if inflate is None:
        raise UndecodableRecords(f"compression type {codec} is unknown")
    try:
        return inflate(compressed, out)
    except cramjam.DecompressionError as error:
        if _TOO_SMALL in str(error):
            raise DoesNotFit from error
        raise UndecodableRecords(str(error)) from error
    except (ValueError, struct.error) as error:
        raise UndecodableRecords(str(error)) from error


def compress(codec: int, records: bytes) -> bytes:
    """Return ``records`` compressed by a codec that ``decompress`` knows."""
    return _COMPRESS[codec](records)


def _snappy_into(data: Records, out: memoryview) -> int:
    """Decompress raw snappy, or the framing of snappy-java: a header, then blocks with their
    lengths."""
    if data[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return _snappy_block_into(data, out)
    used = 0
    position = len(_XERIAL_HEADER)
    while position < len(data):
        (length,) = _BLOCK.unpack_from(data, position)
        position += _BLOCK.size
        if not 0 <= length <= len(data) - position:
            raise UndecodableRecords(f"a snappy block of {length} bytes at {position}")
        used += _snappy_block_into(data[position : position + length], out[used:])
        position += length
    return used


def _snappy_block_into(block: Records, out: memoryview) -> int:
    if cramjam.snappy.decompress_raw_len(block) > len(out):
        raise DoesNotFit
    return int(cramjam.snappy.decompress_raw_into(block, out))


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
_INFLATE: Final[Mapping[int, Callable[[Records, memoryview], int]]] = {
    1: cramjam.gzip.decompress_into,
    _SNAPPY: _snappy_into,
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
