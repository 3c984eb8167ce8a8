"""The keys of the log on disk."""

from typing import Final

from quorate.common.configuration import ConfigKey

LOG_DIR: Final = ConfigKey(name="log.dir", type=str, doc="The folder of the partition logs.")
LOG_FLUSH: Final = ConfigKey(
    name="log.flush",
    type=str,
    default="sync",
    one_of=("sync", "os"),
    doc="With sync, acknowledged records have been fsynced. With os, the operating system decides "
    "when to write, and a power loss may lose acknowledged records.",
)
LOG_SEGMENT_BYTES: Final = ConfigKey(
    name="log.segment.bytes",
    type=int,
    default=256 << 20,
    at_least=1 << 20,
    doc="The size at which a segment of a broker's log is sealed and the next one begins.",
)
LOG_RESERVE_BYTES: Final = ConfigKey(
    name="log.reserve.bytes",
    type=int,
    default=16 << 20,
    at_least=1 << 20,
    doc="The size of a file named reserve on the disk of the log directory, whose space is kept "
    "for deletions and retention. When the disk is full, batches are refused and reads go on, "
    "until twice this size is free.",
)
