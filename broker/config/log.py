"""How partition logs lie on disk."""

from typing import Final

from metadata_log.configuration import ConfigKey

LOG_DIR: Final = ConfigKey(name="log.dir", type=str, doc="Folder of the partition logs.")
LOG_FLUSH: Final = ConfigKey(
    name="log.flush",
    type=str,
    default="sync",
    one_of=("sync", "os"),
    doc="sync: acknowledged = fsynced. os: left to the operating system, a power loss may lose it.",
)
LOG_SEGMENT_BYTES: Final = ConfigKey(
    name="log.segment.bytes",
    type=int,
    default=256 << 20,
    at_least=1 << 20,
    doc="Size at which a broker's segment environment is sealed and the next one begun.",
)
LOG_RESERVE_BYTES: Final = ConfigKey(
    name="log.reserve.bytes",
    type=int,
    default=16 << 20,
    at_least=1 << 20,
    doc="Room on the log directory's disk that a file named reserve keeps for deletions and "
    "retention. Once the disk is full, batches are refused and reads go on until twice as much is "
    "free.",
)
