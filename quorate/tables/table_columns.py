"""The columns of a table against those of rows: which ones a table has to get, or to widen.

Columns are compared part by part: the fields of structs, the items of lists, the values of maps. A
field that the table lacks is added, and a field that the rows lack stays and is null in them.
"""

import re
from typing import Final

import pyarrow as pa

from quorate.tables.table_errors import TableError

_SAME: Final = {"int8": "int32", "int16": "int32", "uint8": "int32", "uint16": "int32"}
"""Types of rows that tables keep as a wider one."""
_WIDER: Final = frozenset({("int32", "int64"), ("float", "double")})
"""What a column may become without a change of its files, by Iceberg's rules of promotion."""


def all_nullable(schema: pa.Schema) -> pa.Schema:
    """Return the columns with everything in them nullable, except the keys of maps.

    A later schema may lack any field, and the table keeps it.
    """
    return pa.schema([pa.field(one.name, _nullable(one.type)) for one in schema])


def grown_columns(
    table: str, present: pa.Schema, rows: pa.Schema, *, widens: bool
) -> list[pa.Field]:
    """Return the columns that the table lacks, and those that need new fields or a wider type.

    Args:
        table: the name of the table, for messages.
        present: the columns of the table.
        rows: the columns of the rows.
        widens: whether the format lets a column become a wider one.

    Raises:
        TableError: a column has another type in the table.
    """
    grown: list[pa.Field] = []
    for field in all_nullable(rows):
        if field.name not in present.names:
            grown.append(field)
            continue
        known = present.field(field.name)
        merged = _Merge(table, widens).merged(field.name, known.type, field.type)
        if merged != known.type:
            grown.append(pa.field(field.name, merged))
    return grown


class _Merge:
    """Merges types of rows into types of a table."""

    def __init__(self, table: str, widens: bool) -> None:
        self._table = table
        self._widens = widens

    def merged(self, where: str, present: pa.DataType, rows: pa.DataType) -> pa.DataType:
        """Return the type that the table is to have; the present one if it does for the rows."""
        if pa.types.is_struct(present) and pa.types.is_struct(rows):
            return self._struct(where, present, rows)
        if _is_list(present) and _is_list(rows):
            items = self.merged(f"{where}[]", present.value_type, rows.value_type)
            return present if items == present.value_type else pa.list_(items)
        if pa.types.is_map(present) and pa.types.is_map(rows):
            values = self.merged(f"{where}[]", present.item_type, rows.item_type)
            if values == present.item_type:
                return present
            return pa.map_(present.key_type, values)
        return self._leaf(where, present, rows)

    def _struct(self, where: str, present: pa.DataType, rows: pa.DataType) -> pa.DataType:
        given = {field.name: field for field in rows}
        known = {field.name for field in present}
        fields = [
            field.with_type(
                self.merged(f"{where}.{field.name}", field.type, given[field.name].type)
            )
            if field.name in given
            else field
            for field in present
        ]
        new = [field for name, field in given.items() if name not in known]
        return pa.struct(fields + new)

    def _leaf(self, where: str, present: pa.DataType, rows: pa.DataType) -> pa.DataType:
        found, wanted = _comparable(present), _comparable(rows)
        if found == wanted or (wanted, found) in _WIDER:
            return present
        if self._widens and (found, wanted) in _WIDER:
            return rows
        raise TableError(
            f"{self._table}: column {where} is {found} in the table and {wanted} in the rows: cast "
            "it, or name another table"
        )


def _nullable(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(type_):
        return pa.struct([pa.field(field.name, _nullable(field.type)) for field in type_])
    if _is_list(type_):
        return pa.list_(_nullable(type_.value_type))
    if pa.types.is_map(type_):
        return pa.map_(type_.key_type, _nullable(type_.item_type))
    return type_


def _is_list(type_: pa.DataType) -> bool:
    return bool(pa.types.is_list(type_) or pa.types.is_large_list(type_))


def _comparable(type_: pa.DataType) -> str:
    text = re.sub(r"\blarge_", "", str(type_))
    return _SAME.get(text, text)
