"""Parses columns as DDL writes them: ``id bigint, tags array<string>, at struct<x: int, y: int>``.

Spark's own parser needs a JVM, which the process has not in which Spark runs a data source.
"""

import re
from typing import Final, NoReturn

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from quorate.spark.errors import ValueSchemaError
from quorate.spark.typed.avro_schema import DECIMAL_PRECISION_MAX, DEPTH_MAX

_TOKENS: Final = re.compile(r"\s*(?:`((?:[^`]|``)+)`|(\w+)|([<>(),:]))")
_SINGLE: Final[dict[str, type[DataType]]] = {
    "bigint": LongType,
    "long": LongType,
    "int": IntegerType,
    "integer": IntegerType,
    "smallint": ShortType,
    "short": ShortType,
    "tinyint": ByteType,
    "byte": ByteType,
    "double": DoubleType,
    "float": FloatType,
    "real": FloatType,
    "string": StringType,
    "binary": BinaryType,
    "boolean": BooleanType,
    "date": DateType,
    "timestamp": TimestampType,
    "timestamp_ntz": TimestampNTZType,
}


def parse_columns(text: str) -> StructType:
    """Parse a list of columns.

    Raises:
        ValueSchemaError: names the place that is not understood.
    """
    parser = _Parser(text)
    found = parser.columns(end="")
    if not found.fields:
        raise ValueSchemaError(f"the schema names no column: {text!r}")
    return found


class _Parser:
    """Reads the tokens of one text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0

    def columns(self, end: str) -> StructType:
        fields: list[StructField] = []
        while (name := self._next()) != end:
            if fields:
                if name != ",":
                    self._refuse(name)
                name = self._next()
            if not name or name in "<>(),:":
                self._refuse(name)
            self._skip(":")
            fields.append(StructField(name, self._type(self._next())))
            for word in ("not", "null"):
                self._skip(word)
        return StructType(fields)

    def _type(self, name: str) -> DataType:
        lower = name.lower()
        if lower in _SINGLE:
            return _SINGLE[lower]()
        if lower in ("decimal", "dec", "numeric"):
            return self._decimal()
        if lower not in ("array", "map", "struct"):
            self._refuse(name)
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise ValueSchemaError("the schema is nested too deeply")
        self._expect("<")
        found = self._nested(lower)
        self._depth -= 1
        return found

    def _nested(self, kind: str) -> DataType:
        if kind == "struct":
            return self.columns(end=">")
        first = self._type(self._next())
        if kind == "array":
            self._expect(">")
            return ArrayType(first)
        self._expect(",")
        second = self._type(self._next())
        self._expect(">")
        if not isinstance(first, StringType):
            raise ValueSchemaError(f"the keys of a map are strings in JSON: {self._text!r}")
        return MapType(first, second)

    def _decimal(self) -> DataType:
        if not self._skip("("):
            return DecimalType(10, 0)
        precision, scale = self._number(), 0
        if self._skip(","):
            scale = self._number()
        self._expect(")")
        if not 1 <= precision <= DECIMAL_PRECISION_MAX or scale > precision:
            raise ValueSchemaError(f"decimal({precision},{scale}) is no type: {self._text!r}")
        return DecimalType(precision, scale)

    def _number(self) -> int:
        token = self._next()
        if not token.isdecimal():
            self._refuse(token)
        return int(token)

    def _next(self) -> str:
        found = _TOKENS.match(self._text, self._at)
        if found is None:
            if self._text[self._at :].strip():
                self._refuse(self._text[self._at :].strip()[:20])
            return ""
        self._at = found.end()
        quoted, word, mark = found.groups()
        return quoted.replace("``", "`") if quoted else word or mark

    def _skip(self, token: str) -> bool:
        before = self._at
        if self._next().lower() == token:
            return True
        self._at = before
        return False

    def _expect(self, token: str) -> None:
        if (found := self._next()) != token:
            self._refuse(found)

    def _refuse(self, token: str) -> NoReturn:
        raise ValueSchemaError(
            f"the schema {self._text!r} is not understood at {token or 'its end'!r}: write it as "
            "'id bigint, name string, tags array<string>', or as a JSON Schema"
        )
