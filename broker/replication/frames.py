"""Raw frames of ``Replication.Fetch`` and ``RangeRead.Read``.

    u32 big-endian header length | header (a protobuf message) | record batches, back to back

The records are joined once, into the frame, and cut out of it as views.
"""

import struct
from collections.abc import Sequence
from typing import Final

from quorate.broker.replication.api import Bytes

_LENGTH: Final = struct.Struct(">I")


class MalformedFrame(ValueError):
    """A frame is shorter than its header says."""


def pack_frame(header: bytes, chunks: Sequence[Bytes] = ()) -> bytes:
    """Return one frame."""
    return b"".join((_LENGTH.pack(len(header)), header, *chunks))


def unpack_frame(frame: bytes) -> tuple[bytes, memoryview]:
    """Return the header and the records of a frame.

    Raises:
        MalformedFrame: the header is not whole.
    """
    if len(frame) < _LENGTH.size:
        raise MalformedFrame(f"a frame of {len(frame)} bytes has no header length")
    (length,) = _LENGTH.unpack_from(frame)
    end = _LENGTH.size + length
    if len(frame) < end:
        raise MalformedFrame(f"a frame of {len(frame)} bytes announces a header of {length}")
    return frame[_LENGTH.size : end], memoryview(frame)[end:]
