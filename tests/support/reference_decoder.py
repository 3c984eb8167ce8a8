"""Decodes the records of a batch as Kafka's protocol guide describes them, one field at a time.

It shares no code with the product: tests compare what it refuses with what a broker refuses.
"""

import io

import cramjam

_DECOMPRESS = {
    1: cramjam.gzip.decompress,
    3: cramjam.lz4.decompress,
    4: cramjam.zstd.decompress,
}


class Refused(Exception):
    """The bytes are not the records that the batch claims to have."""


def decoded(
    data: bytes, count: int, codec: int = 0, base_timestamp: int = 0
) -> list[tuple[int, bytes | None, bytes | None, list[tuple[bytes, bytes | None]]]]:
    """Return the timestamp, key, value and headers of each record.

    Raises:
        Refused: they cannot be decoded, or not all bytes are theirs.
    """
    stream = io.BytesIO(_decompressed(data, codec))
    records = []
    for place in range(count):
        body = io.BytesIO(_exactly(stream, _number(stream, 32)))
        _exactly(body, 1)
        timestamp = base_timestamp + _number(body, 64)
        if not -(1 << 63) <= timestamp < 1 << 63:
            raise Refused("timestamp")
        if _number(body, 32) != place:
            raise Refused("offset delta")
        key, value = _field(body), _field(body)
        headers = []
        for _ in range(_natural(_number(body, 32))):
            name = _field(body)
            if name is None:
                raise Refused("header without a key")
            headers.append((name, _field(body)))
        if body.read():
            raise Refused("more bytes in the record")
        records.append((timestamp, key, value, headers))
    if stream.read():
        raise Refused("more bytes in the batch")
    return records


def _decompressed(data: bytes, codec: int) -> bytes:
    try:
        if codec == 2:
            return _snappy(data)
        return bytes(_DECOMPRESS[codec](data)) if codec else data
    except cramjam.DecompressionError as error:
        raise Refused("cannot be decompressed") from error


def _snappy(data: bytes) -> bytes:
    if not data.startswith(b"\x82SNAPPY\x00"):
        return bytes(cramjam.snappy.decompress_raw(data))
    stream, plain = io.BytesIO(data[16:]), b""
    while length := stream.read(4):
        block = _exactly(stream, int.from_bytes(length.rjust(4, b"\xff"), "big", signed=True))
        plain += bytes(cramjam.snappy.decompress_raw(block))
    return plain


def _field(stream: io.BytesIO) -> bytes | None:
    length = _number(stream, 32)
    return None if length == -1 else _exactly(stream, length)


def _exactly(stream: io.BytesIO, length: int) -> bytes:
    data = stream.read(_natural(length))
    if len(data) < length:
        raise Refused("too short")
    return data


def _natural(number: int) -> int:
    if number < 0:
        raise Refused("negative")
    return number


def _number(stream: io.BytesIO, bits: int) -> int:
    raw = 0
    for place in range(0, bits, 7):
        (byte,) = _exactly(stream, 1)
        raw += (byte % 128) << place
        if byte < 128:
            if raw >= 1 << bits:
                break
            return raw // 2 if raw % 2 == 0 else -(raw + 1) // 2
    raise Refused("varint")
