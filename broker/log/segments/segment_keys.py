"""The keys of a segment: 14 bytes, big-endian, so that they sort like the numbers.

    partition number u32 | base offset u64 | chunk u16      a batch, or a piece of one
    partition number u32 | base offset u64 | CHECK           crc u32 of key and start of the batch
    EPOCHS   | partition number << 32 | leader epoch | 0    start offset of the epoch, u64 | crc u32
    IDENTITY | 0 | 0                                        format u32, segment id u64

The last two partition numbers are reserved for the segment itself. The *check* of a batch covers
what the checksum that its producer set does not: the partition that it is of, its base offset, size
and leader epoch. A segment of format 1, of an earlier release, has no checks and no checksums of
epochs. It is read, and never written again.
"""

import struct
from typing import Final

from crc32c import crc32c

FORMAT: Final = 2
FORMAT_WITHOUT_CHECKS: Final = 1

KEY: Final = struct.Struct(">IQH")
NUMBER: Final = struct.Struct(">I")
OFFSET: Final = struct.Struct(">Q")
IDENTITY_VALUE: Final = struct.Struct(">IQ")
EPOCHS: Final = 0xFFFF_FFFE
_IDENTITY: Final = 0xFFFF_FFFF
LAST_NUMBER: Final = EPOCHS - 1
"""The largest local partition number."""
CHECK: Final = 0xFFFF
"""The number of the chunk that holds the check of a batch. No batch has as many chunks."""
CRC: Final = struct.Struct(">I")
IDENTITY_KEY: Final = KEY.pack(_IDENTITY, 0, 0)


def epoch_key(number: int, leader_epoch: int) -> bytes:
    return KEY.pack(EPOCHS, number << 32 | leader_epoch, 0)


def epoch_of(packed: int) -> tuple[int, int]:
    """Return the partition number and the leader epoch in the key of an epoch."""
    return packed >> 32, packed & 0xFFFF_FFFF


def packed_epoch(key: bytes, start_offset: int) -> bytes:
    """Return the value of an epoch."""
    packed = OFFSET.pack(start_offset)
    return packed + CRC.pack(crc32c(packed, crc32c(key)))


def epoch_start(key: bytes, value: bytes) -> int:
    """Return the start offset of an epoch.

    Raises:
        ValueError: The value is not what was written.
    """
    start_offset = int(OFFSET.unpack_from(value)[0])
    if len(value) != OFFSET.size and value != packed_epoch(key, start_offset):
        raise ValueError(f"the epoch at {key.hex()} does not match its checksum")
    return start_offset
