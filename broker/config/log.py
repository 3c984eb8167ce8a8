"""The keys of the log on disk."""

from pathlib import Path
from typing import Final

from quorate.common.configuration import ConfigError, ConfigKey, Configuration

LOG_DIR: Final = ConfigKey(
    name="log.dir",
    type=str,
    default="",
    doc="The folder of the partition logs. It is used if log.dirs is not set.",
)
LOG_DIRS: Final = ConfigKey(
    name="log.dirs",
    type=str,
    default="",
    is_list=True,
    doc="The folders of the partition logs, separated by commas, one on each disk (JBOD). A new "
    "replica goes to the folder with the fewest. When a disk fails, only the replicas on it go "
    "offline. A folder may be added at a restart. The audit log is in the first folder.",
)
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


def log_folders(config: Configuration) -> list[Path]:
    """Return the absolute paths of the log folders, in the order of the configuration.

    Raises:
        ConfigError: There is none, or one is named twice.
    """
    alone, names = config[LOG_DIR], config[LOG_DIRS] or config[LOG_DIR]
    folders = [Path(name.strip()).absolute() for name in names.split(",") if name.strip()]
    if alone and Path(alone).absolute() not in folders:
        raise ConfigError(
            f"log.dirs={names} leaves out log.dir={alone}: list that folder, too, since it may "
            "have logs; or take log.dir out of the configuration"
        )
    if not folders:
        raise ConfigError("missing broker configuration: log.dirs, or log.dir")
    if len(set(folders)) < len(folders):
        raise ConfigError(f"log.dirs={names}: a folder is named twice")
    return folders
