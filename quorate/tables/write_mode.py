"""The modes in which rows get into a table, and the column that tells keys apart. It is pure."""

from collections.abc import Collection
from enum import StrEnum
from typing import Final

KEY: Final = "key"
RAW_KEY: Final = "_key"
"""The column with the bytes of the key, in tables whose column ``key`` has its fields instead."""


class WriteMode(StrEnum):
    """The effect of a record on a table. The names are the values of ``table.write.mode``."""

    APPEND = "append"
    """Each record is a row."""
    UPSERT = "upsert"
    """Each key of a partition has one row, that of its newest record; a tombstone removes it."""


def identity_column(columns: Collection[str]) -> str:
    """Return the column whose bytes tell the keys of a table apart."""
    return RAW_KEY if RAW_KEY in columns else KEY
