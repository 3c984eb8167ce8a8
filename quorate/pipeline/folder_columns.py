"""The columns that name the folders of a Parquet sink, below ``topic=…/partition=…``. Pure.

Without ``sink.partition.by`` it is ``date``, the day of the record's timestamp. With it, each
transform is a folder: ``day(timestamp)`` makes ``timestamp_day=2026-11-22``, ``hour(timestamp)``
makes ``timestamp_hour=2026-11-22-13``, ``identity(country)`` makes ``country=at``. Spark reads them
as columns, and leaves out the folders that a filter rules out.
"""

import re
from collections.abc import Sequence
from typing import Final

from quorate.common.configuration import ConfigError
from quorate.tables.partitioning import PartitionField

OWN_COLUMNS: Final = ("topic", "partition")
"""The columns of the outer folders, by which a run knows whose offsets a file has."""

DATE: Final = "date"
_KEPT_IN_FILES: Final = frozenset({*OWN_COLUMNS, "offset", "timestamp"})
"""The columns that name no folder of their own: they do already, or no two rows share a value."""

_MARK: Final = "columns="


def check_folder_fields(fields: Sequence[PartitionField]) -> None:
    """Check that folders of Parquet files can be named by these fields.

    Raises:
        ConfigError: they cannot; the message says why.
    """
    for field in fields:
        if field.transform == "bucket":
            raise ConfigError(
                f"sink.partition.by has {field}: buckets are of tables; a folder of Parquet files "
                "has hour, day and identity"
            )
        if field.transform == "identity" and field.source.lower() in _KEPT_IN_FILES:
            raise ConfigError(
                f"sink.partition.by has {field}: files lie by topic and partition anyway, and "
                "offset and timestamp would make a folder for every record; use hour or day"
            )
        if field.source.startswith("_"):
            raise ConfigError(
                f"sink.partition.by has {field}: readers of Parquet, and the pipeline itself, skip "
                "folders whose names begin with an underscore; transform.sql may name the column "
                "otherwise"
            )
    names = [name.lower() for name in folder_columns(fields)]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(f"sink.partition.by makes more than one folder {', '.join(twice)}")


def folder_columns(fields: Sequence[PartitionField]) -> tuple[str, ...]:
    """Return the columns that folders are named by, from the outermost to the innermost."""
    return (*OWN_COLUMNS, *([field.name for field in fields] or [DATE]))


def mark_of(columns: Sequence[str]) -> str:
    """Return the name of the file that says by which columns the folders of a sink are named.

    The name says it, not the content: a name is there as a whole or not at all.
    """
    return _MARK + ",".join(columns)


def columns_of_mark(name: str) -> tuple[str, ...] | None:
    """Return the columns that such a name says, or None if it is none."""
    found = re.fullmatch(re.escape(_MARK) + r"(\w+(?:,\w+)*)", name)
    return None if found is None else tuple(found[1].split(","))
