"""Decompresses the records of a batch, for all codecs of Kafka."""

import struct
from collections.abc import Callable
from typing import Final

import cramjam

from quorate.spark.errors import CorruptBatch

Bytes = bytes | bytearray | memoryview

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES: Final = 16
_BLOCK_LENGTH: Final = struct.Struct(">i")


def decompress(codec: int, records: Bytes, base_offset: int) -> Bytes:
    """Return the decompressed records of the batch at ``base_offset``.

    Raises:
        CorruptBatch: names the offset, the codec and the codec's own message.
    """
    plain = _CODECS.get(codec)
    if plain is None:
        raise CorruptBatch(f"the batch at offset {base_offset} has unknown codec {codec}")
    try:
        return memoryview(plain(records))
    except (cramjam.DecompressionError, ValueError, struct.error) as error:
        raise CorruptBatch(
            f"the batch at offset {base_offset} cannot be decompressed (codec {codec}): {error}"
        ) from None


def _snappy(records: Bytes) -> "Bytes | cramjam.Buffer":
    """Decompress one Snappy block, or Java's framing (xerial: a header, then sized blocks)."""
    if records[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return cramjam.snappy.decompress_raw(records)
    blocks = []
    position = _XERIAL_HEADER_BYTES
    while position < len(records):
        (size,) = _BLOCK_LENGTH.unpack_from(records, position)
        position += _BLOCK_LENGTH.size
        if not 0 <= size <= len(records) - position:
            raise ValueError(f"a snappy block of {size} bytes at {position}")
        blocks.append(
            memoryview(cramjam.snappy.decompress_raw(records[position : position + size]))
        )
        position += size
    return b"".join(blocks)


_CODECS: Final[dict[int, Callable[[Bytes], "Bytes | cramjam.Buffer"]]] = {
    1: cramjam.gzip.decompress,
    2: _snappy,
    3: cramjam.lz4.decompress,
    4: cramjam.zstd.decompress,
}
