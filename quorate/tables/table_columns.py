"""The columns of a table against those of rows."""

import re
from typing import Final

import pyarrow as pa

from quorate.tables.table_errors import TableError

_SAME: Final = {"int8": "int32", "int16": "int32", "uint8": "int32", "uint16": "int32"}
"""Types of rows that tables keep as a wider one."""


def new_columns(table: str, present: pa.Schema, rows: pa.Schema) -> list[pa.Field]:
    """Return the columns that the table lacks, as nullable ones.

    Raises:
        TableError: a column has another type in the table.
    """
    for field in rows:
        if field.name in present.names:
            found, wanted = (_comparable(one.field(field.name).type) for one in (present, rows))
            if found != wanted:
                raise TableError(
                    f"{table}: column {field.name} is {found} in the table and {wanted} in the "
                    "rows: cast it, or name another table"
                )
    return [field.with_nullable(True) for field in rows if field.name not in present.names]


def _comparable(type_: pa.DataType) -> str:
    """Return a type as text, without the names and nullability of what is within lists."""
    text = re.sub(r"\blarge_", "", str(type_)).replace(" not null", "")
    text = re.sub(r"list<\w+: ", "list<", text)
    return _SAME.get(text, text)
