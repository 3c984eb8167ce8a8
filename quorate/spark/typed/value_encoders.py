"""Encodes keys and values of a write by their format, with the id of their schema before each.

A format is found on the driver, which asks the registry for the schema, or registers the given one.
It travels to the executors by pickle.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    MapType,
    StringType,
    StructType,
)

from quorate.spark.errors import OptionError, RowError, SchemaError
from quorate.spark.options.typed_options import (
    AVRO,
    JSON,
    WITH_SCHEMA,
    ColumnOptions,
    TypedOptions,
)
from quorate.spark.typed.avro_format import avro_type
from quorate.spark.typed.avro_schema import AvroType, parse_avro
from quorate.spark.typed.avro_shapes import spark_type
from quorate.spark.typed.find_format import registered_schema
from quorate.spark.typed.json_types import json_type
from quorate.spark.typed.registry_settings import RegistrySettings
from quorate.spark.typed.schema_prefix import prefix

if TYPE_CHECKING:
    import pyarrow as pa

    Encode = Callable[["pa.Array"], "pa.Array"]


@dataclass(frozen=True, slots=True)
class ColumnEncoding:
    """How the column ``key`` or ``value`` is encoded."""

    name: str
    format: str
    type: DataType
    """The type that the column is brought to before it is encoded."""
    prefix: bytes = b""
    """The bytes before each record: the id of its schema, and for Protobuf the message's path."""
    avro: AvroType | None = None
    files: bytes = b""
    """The FileDescriptorSet with the message, where the format is Protobuf."""
    message: str = ""

    def encoder(self) -> "Encode":
        """Return a function that encodes a column; it raises `RowError`."""
        import pyarrow.compute as pc
        from pyspark.sql.pandas.types import to_arrow_type

        from quorate.spark.typed.conforming import conformed

        encode = self._encoder()
        type_ = to_arrow_type(self.type, timezone="UTC")

        def encode_whole(column: "pa.Array") -> "pa.Array":
            try:
                whole = conformed(column, type_)
            except ValueError as error:
                raise RowError(f"column {self.name!r} does not fit its schema: {error}") from None
            encoded = encode(whole)
            if not self.prefix:
                return encoded
            return pc.binary_join_element_wise(self.prefix, encoded, b"")

        return encode_whole

    def _encoder(self) -> "Encode":
        if self.avro is not None:
            return _avro_encoder(self.avro, self.name)
        if self.format == JSON:
            return _json_encoder
        return _protobuf_encoder(self.files, self.message)


def find_encodings(options: TypedOptions, schema: StructType) -> tuple[ColumnEncoding, ...]:
    """Find how the columns of a write are encoded, those that are not written as they are.

    Raises:
        OptionError: names the option and what to do.
        SchemaError: a column does not fit its schema; names the field.
        ValueSchemaError: a schema cannot be used.
        RegistryUnavailable: the registry gave no answer within the retries, or refused.
    """
    found = []
    for about in (options.key, options.value):
        if about.format in WITH_SCHEMA and about.name in schema.names:
            encoding = _find(about, options.registry)
            _check_fields(about.name, schema[about.name].dataType, encoding.type)
            found.append(encoding)
    return tuple(found)


def _find(about: ColumnOptions, registry: RegistrySettings | None) -> ColumnEncoding:
    text, before = about.schema, b""
    if registry is not None:
        if about.subject is None:
            raise OptionError(f"name the subject of the schema: give {about.name}Subject or topic")
        if text is not None:
            if about.format == JSON and not text.lstrip().startswith("{"):
                raise OptionError(f"option {about.name}Schema must be a JSON Schema to register it")
            from quorate.spark.typed.schema_registry import registry_of

            client = registry_of(registry)
            before = prefix(client.register(about.subject, about.format.upper(), text))
    if about.format == AVRO:
        if text is not None:
            avro = parse_avro(text)
        else:
            assert registry is not None
            registered = registered_schema(about, registry)
            avro, before = avro_type(registered), prefix(registered.schema_id)
        return ColumnEncoding(about.name, AVRO, spark_type(avro), before, avro)
    if about.format == JSON:
        if text is None:
            assert registry is not None
            registered = registered_schema(about, registry)
            text, before = registered.text, prefix(registered.schema_id)
        return ColumnEncoding(about.name, JSON, json_type(text), before)
    return _protobuf(about, registry, before)


def _protobuf(
    about: ColumnOptions, registry: RegistrySettings | None, before: bytes
) -> ColumnEncoding:
    from quorate.spark.typed.avro_encoding import long
    from quorate.spark.typed.protobuf_format import descriptors, protobuf_format
    from quorate.spark.typed.protobuf_text import descriptors_of, path_of

    if about.schema is not None:
        files = descriptors_of(about.schema)
    else:
        assert registry is not None
        registered = registered_schema(about, registry)
        files, before = descriptors(registered), prefix(registered.schema_id)
    found = protobuf_format(files, about.message, None)
    if before:
        path = path_of(found.descriptor())
        # The path of the first message is written as a single zero.
        before += b"\0" if path == [0] else b"".join(map(long, (len(path), *path)))
    return ColumnEncoding(
        about.name, about.format, found.spark_type, before, None, found.files, found.message
    )


def _check_fields(where: str, given: DataType, known: DataType) -> None:
    """Refuse a column whose fields are not those of its schema."""
    if isinstance(given, StructType) and isinstance(known, StructType):
        for name in given.names:
            if name not in known.names:
                raise SchemaError(
                    f"column {where!r} has the field {name!r}, which its schema does not have: it "
                    "would be lost"
                )
        for field in known.fields:
            if field.name not in given.names:
                raise SchemaError(
                    f"column {where!r} lacks the field {field.name!r} of its schema: give it, as "
                    "null where there is none"
                )
            _check_fields(f"{where}.{field.name}", given[field.name].dataType, field.dataType)
    elif isinstance(given, ArrayType) and isinstance(known, ArrayType):
        _check_fields(f"{where}[]", given.elementType, known.elementType)
    elif isinstance(given, MapType) and isinstance(known, MapType):
        _check_fields(f"{where}[]", given.valueType, known.valueType)
    elif type(given) is not type(known) and not _casts(given, known):
        raise SchemaError(
            f"column {where!r} is {given.simpleString()}, and its schema has "
            f"{known.simpleString()}: cast it"
        )


def _casts(given: DataType, known: DataType) -> bool:
    """Return True if values of a type are brought to the other without a doubt."""
    from pyspark.sql.types import DecimalType, NullType, NumericType

    if isinstance(given, NullType):
        return True
    texts = (StringType, BinaryType)
    if isinstance(known, BinaryType) and isinstance(given, texts):
        return True
    numbers = isinstance(given, NumericType) and isinstance(known, NumericType)
    return numbers and isinstance(given, DecimalType) == isinstance(known, DecimalType)


def _avro_encoder(avro: AvroType, name: str) -> "Encode":
    import pyarrow as pa

    from quorate.spark.typed.avro_encoding import (
        PlainSchema,
        encode_value,
        encodes_columns,
        plain_array,
    )

    def encode_rows(column: "pa.Array") -> "pa.Array":
        rows = (
            None if row is None else encode_value(avro, row, name) for row in column.to_pylist()
        )
        return pa.array(rows, pa.binary())

    if avro.kind != "record" or not avro.fields or not encodes_columns(avro):
        return encode_rows
    from pyruhvro import serialize_record_batch

    text = json.dumps(PlainSchema().of(avro))

    def encode_columns(column: "pa.Array") -> "pa.Array":
        present = column.drop_null()
        if not len(present):
            return pa.nulls(len(column), pa.binary())
        batch = pa.RecordBatch.from_struct_array(plain_array(present, avro, name))
        try:
            (encoded,) = serialize_record_batch(batch, text, 1)
        except ValueError as error:
            raise RowError(f"column {name!r} does not fit its schema: {error}") from None
        return _with_nulls(encoded, column)

    return encode_columns


def _protobuf_encoder(files: bytes, message: str) -> "Encode":
    import pyarrow as pa

    from quorate.spark.typed.conforming import conformed
    from quorate.spark.typed.protobuf_format import ProtobufFormat
    from quorate.spark.typed.protobuf_values import message_handler

    descriptor = ProtobufFormat(files, message).descriptor()
    handler = message_handler(descriptor)
    expected = pa.struct(list(handler.schema()))

    def encode(column: "pa.Array") -> "pa.Array":
        present = column.drop_null()
        if not len(present):
            return pa.nulls(len(column), pa.binary())
        try:
            batch = pa.RecordBatch.from_struct_array(conformed(present, expected))
            encoded = handler.record_batch_to_array(batch)
        except BaseException as error:
            if not isinstance(error, ValueError) and type(error).__name__ != "PanicException":
                raise
            raise RowError(f"a row does not fit the Protobuf message {message}: {error}") from None
        return _with_nulls(encoded, column)

    return encode


def _json_encoder(column: "pa.Array") -> "pa.Array":
    """Encode row by row: Arrow has no writer of JSON."""
    import pyarrow as pa

    rows = (
        None if row is None else json.dumps(_json(row, column.type)) for row in column.to_pylist()
    )
    return pa.array(rows, pa.string()).view(pa.binary())


def _json(value: Any, type_: "pa.DataType") -> Any:  # noqa: ANN401 - any value
    """Return a value as `json.dumps` takes it. Fields that are null are left out."""
    import pyarrow as pa

    if value is None or isinstance(value, bool | int | float | str):
        return value
    if pa.types.is_struct(type_):
        parts = {part.name: _json(value[part.name], part.type) for part in type_}
        return {name: part for name, part in parts.items() if part is not None}
    if pa.types.is_map(type_):
        return {key: _json(item, type_.item_type) for key, item in value}
    if pa.types.is_list(type_):
        return [_json(item, type_.value_type) for item in value]
    if isinstance(value, bytes):
        raise RowError("JSON has no type for binary columns: encode them as texts")
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _with_nulls(encoded: "pa.Array", column: "pa.Array") -> "pa.Array":
    """Return the encoded values of a column, which are without its nulls, at their rows."""
    if not column.null_count:
        return encoded
    import numpy as np
    import pyarrow as pa

    valid = column.is_valid().to_numpy(zero_copy_only=False)
    return encoded.take(pa.array(np.cumsum(valid) - 1, mask=~valid))
