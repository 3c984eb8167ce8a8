"""Checks whose a log folder is: a folder that was used has the identity of the broker that used it.

A broker that found none would take the logs in the folder for its own under a new directory id.
"""

from pathlib import Path
from typing import Final

from quorate.broker.log.checkpoints.store_table import FILE_NAME
from quorate.broker.log.recovery.examination import LogExamination, LogProblem, examine
from quorate.common.files.data_folder import IDENTITY_FILE, DataFolderError, read_identity

_ROLE: Final = "broker"


def require_identity(directory: Path) -> None:
    """Refuse a folder that has logs and is to get its first identity now.

    Raises:
        DataFolderError: the folder has logs.
    """
    if (directory / FILE_NAME).exists():
        raise DataFolderError(_missing(directory))


def examine_folder(directory: Path) -> LogExamination:
    """Examine the logs of a folder as ``examine`` does, and its identity.

    Raises:
        KafkaError: as ``examine``.
    """
    examined = examine(directory)
    problem = _identity_problem(directory)
    if problem:
        examined.problems.insert(0, LogProblem(what=problem))
    return examined


def _identity_problem(directory: Path) -> str:
    try:
        found = read_identity(directory)
    except DataFolderError as error:
        return f"{error}: this broker does not start"
    if found is None:
        return _missing(directory)
    if found.role != _ROLE:
        return f"{directory / IDENTITY_FILE} is of a {found.role}, not of a {_ROLE}"
    return ""


def _missing(directory: Path) -> str:
    return (
        f"log directory {directory} has logs but no {IDENTITY_FILE}; restore it, or, if other "
        "brokers are in sync with all partitions of this one, move the directory aside: it is then "
        "filled from them"
    )
