"""The keys of a segment: 14 bytes, big-endian, so that they sort like the numbers.

    partition number u32 | base offset u64 | chunk u16      a batch, or a piece of one
    EPOCHS   | partition number << 32 | leader epoch | 0    start offset of the epoch, u64
    IDENTITY | 0 | 0                                        format u32, segment id u64

The last two partition numbers are reserved for the segment itself.
"""

import struct
from typing import Final

FORMAT: Final = 1

KEY: Final = struct.Struct(">IQH")
NUMBER: Final = struct.Struct(">I")
OFFSET: Final = struct.Struct(">Q")
IDENTITY_VALUE: Final = struct.Struct(">IQ")
EPOCHS: Final = 0xFFFF_FFFE
_IDENTITY: Final = 0xFFFF_FFFF
LAST_NUMBER: Final = EPOCHS - 1
"""The largest local partition number."""
IDENTITY_KEY: Final = KEY.pack(_IDENTITY, 0, 0)


def epoch_key(number: int, leader_epoch: int) -> bytes:
    return KEY.pack(EPOCHS, number << 32 | leader_epoch, 0)
