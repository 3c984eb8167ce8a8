"""The Spark types of JSON values: from a JSON Schema, or from columns as DDL writes them."""

import json
from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from quorate.spark.errors import ValueSchemaError
from quorate.spark.typed.avro_schema import DEPTH_MAX, TYPES_MAX
from quorate.spark.typed.ddl import parse_columns

_SINGLE: Final[Mapping[str, DataType]] = {
    "string": StringType(),
    "integer": LongType(),
    "number": DoubleType(),
    "boolean": BooleanType(),
}


def json_type(text: str) -> StructType:
    """Return the type of the objects that a JSON Schema or a list of columns describes.

    Raises:
        ValueSchemaError: it is neither, or describes what is no object of known fields.
    """
    if not text.lstrip().startswith("{"):
        return parse_columns(text)
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueSchemaError(f"the JSON Schema is no JSON: {error}") from None
    found = _Types(schema).type(schema, "the value")
    if not isinstance(found, StructType):
        raise ValueSchemaError(
            f"the JSON Schema describes {found.simpleString()}, not an object with properties"
        )
    return found


class _Types:
    """Finds the types of one schema, whose parts may refer to each other."""

    def __init__(self, whole: Mapping[str, Any]) -> None:
        self._whole = whole
        self._around: list[str] = ["#"]
        self._count = 0

    def type(self, schema: Any, where: str, depth: int = 0) -> DataType:  # noqa: ANN401 - JSON
        self._count += 1
        if depth > DEPTH_MAX or self._count > TYPES_MAX:
            raise ValueSchemaError("the JSON Schema is nested too deeply, or too large")
        if not isinstance(schema, dict):
            raise ValueSchemaError(f"the JSON Schema does not say the type of {where}")
        if "$ref" in schema:
            return self._referred(schema["$ref"], where, depth)
        for key in ("oneOf", "anyOf"):
            if key in schema:
                return self._one_of(schema[key], where, depth)
        kinds = schema.get("type")
        named = [kinds] if isinstance(kinds, str) else list(kinds or ())
        named = [kind for kind in named if kind != "null"]
        if sorted(named) == ["integer", "number"]:
            named = ["number"]
        if not named and "properties" in schema:
            named = ["object"]
        if not named and all(isinstance(one, str) for one in schema.get("enum", (0,))):
            named = ["string"]
        if len(named) != 1:
            raise ValueSchemaError(f"the JSON Schema does not say one type of {where}")
        return self._of_kind(named[0], schema, where, depth)

    def _of_kind(self, kind: str, schema: Mapping[str, Any], where: str, depth: int) -> DataType:
        if kind in _SINGLE:
            return _SINGLE[kind]
        if kind == "array":
            return ArrayType(self.type(schema.get("items"), f"{where}[]", depth + 1))
        if kind != "object":
            raise ValueSchemaError(f"the JSON Schema says that {where} is {kind!r}")
        if properties := schema.get("properties"):
            return StructType(
                [
                    StructField(name, self.type(part, f"{where}.{name}", depth + 1))
                    for name, part in properties.items()
                ]
            )
        return MapType(
            StringType(), self.type(schema.get("additionalProperties"), f"{where}.*", depth + 1)
        )

    def _one_of(self, parts: Any, where: str, depth: int) -> DataType:  # noqa: ANN401 - JSON
        others = [part for part in parts if part != {"type": "null"}]
        if len(others) != 1:
            raise ValueSchemaError(f"the JSON Schema does not say one type of {where}")
        return self.type(others[0], where, depth + 1)

    def _referred(self, reference: str, where: str, depth: int) -> DataType:
        if reference in self._around:
            raise ValueSchemaError(
                f"the JSON Schema of {where} contains itself: Spark has no type for that"
            )
        found: Any = self._whole
        for step in filter(None, str(reference).split("/")):
            if step == "#" and found is self._whole:
                continue
            if (
                not str(reference).startswith("#")
                or not isinstance(found, dict)
                or step not in found
            ):
                raise ValueSchemaError(f"the JSON Schema has no {reference!r}, as {where} is to be")
            found = found[step]
        self._around.append(reference)
        type_ = self.type(found, where, depth + 1)
        self._around.pop()
        return type_
