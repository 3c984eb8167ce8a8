"""The Spark types of Protobuf messages.

Unsigned numbers get the next wider type, so that none of them turns negative: uint32 a bigint and
uint64 a decimal(20,0). Enums are the names of their values. Timestamps, durations and the wrappers
of single values, as google.protobuf has them, are the types that they stand for.
"""

from typing import Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from quorate.spark.errors import ValueSchemaError
from quorate.spark.typed.avro_schema import TYPES_MAX

_UINT64: Final = DecimalType(20, 0)
_SCALARS: Final[dict[int, DataType]] = {
    FieldDescriptor.TYPE_DOUBLE: DoubleType(),
    FieldDescriptor.TYPE_FLOAT: FloatType(),
    FieldDescriptor.TYPE_INT64: LongType(),
    FieldDescriptor.TYPE_UINT64: _UINT64,
    FieldDescriptor.TYPE_INT32: IntegerType(),
    FieldDescriptor.TYPE_FIXED64: _UINT64,
    FieldDescriptor.TYPE_FIXED32: LongType(),
    FieldDescriptor.TYPE_BOOL: BooleanType(),
    FieldDescriptor.TYPE_STRING: StringType(),
    FieldDescriptor.TYPE_BYTES: BinaryType(),
    FieldDescriptor.TYPE_UINT32: LongType(),
    FieldDescriptor.TYPE_ENUM: StringType(),
    FieldDescriptor.TYPE_SFIXED32: IntegerType(),
    FieldDescriptor.TYPE_SFIXED64: LongType(),
    FieldDescriptor.TYPE_SINT32: IntegerType(),
    FieldDescriptor.TYPE_SINT64: LongType(),
}
_WELL_KNOWN: Final[dict[str, DataType]] = {
    "google.protobuf.Timestamp": TimestampType(),
    "google.protobuf.Duration": DayTimeIntervalType(),
    "google.protobuf.DoubleValue": DoubleType(),
    "google.protobuf.FloatValue": FloatType(),
    "google.protobuf.Int64Value": LongType(),
    "google.protobuf.UInt64Value": _UINT64,
    "google.protobuf.Int32Value": IntegerType(),
    "google.protobuf.UInt32Value": LongType(),
    "google.protobuf.BoolValue": BooleanType(),
    "google.protobuf.StringValue": StringType(),
    "google.protobuf.BytesValue": BinaryType(),
}


def message_type(message: Descriptor) -> StructType:
    """Return the Spark type of a message.

    Raises:
        ValueSchemaError: Spark has no type for it, because it contains itself or is too large.
    """
    return _Types().struct(message)


class _Types:
    """Counts the types, and knows the messages around the one that is looked at."""

    def __init__(self) -> None:
        self._around: list[str] = []
        self._count = 0

    def struct(self, message: Descriptor) -> StructType:
        name = message.full_name
        if name in self._around:
            raise ValueSchemaError(
                f"the Protobuf message {name} contains itself: Spark has no type for that; leave "
                "the field out by a schema of your own, or read the value as binary"
            )
        self._around.append(name)
        fields = [StructField(field.name, self._field(field)) for field in message.fields]
        self._around.pop()
        return StructType(fields)

    def _field(self, field: FieldDescriptor) -> DataType:
        self._count += 1
        if self._count > TYPES_MAX:
            raise ValueSchemaError(f"the Protobuf schema has more than {TYPES_MAX} types")
        message = field.message_type
        if message is not None and message.GetOptions().map_entry:
            key, value = message.fields
            return MapType(self._single(key), self._single(value))
        single = self._single(field)
        return ArrayType(single) if field.is_repeated else single

    def _single(self, field: FieldDescriptor) -> DataType:
        if field.type == FieldDescriptor.TYPE_GROUP:
            raise ValueSchemaError(f"field {field.full_name} is a group, which is not supported")
        if field.message_type is None:
            return _SCALARS[field.type]
        known = _WELL_KNOWN.get(field.message_type.full_name)
        return known if known is not None else self.struct(field.message_type)
