"""The log folders of the brokers of a local cluster: each broker has its own."""

from collections.abc import Mapping
from pathlib import Path

from quorate.broker.config.log import LOG_DIR, LOG_DIRS


def with_own_folders(settings: Mapping[str, object], folder: Path) -> dict[str, object]:
    """Return settings of the broker whose files are in ``folder``.

    ``log.dirs`` names folders below it, and "." is the folder itself, in which the logs are without
    the key.
    """
    own = dict(settings)
    names = str(own.get(LOG_DIRS.name, ""))
    if names:
        own[LOG_DIRS.name] = ",".join(str(folder / name.strip()) for name in names.split(","))
        own[LOG_DIR.name] = ""
    return own
