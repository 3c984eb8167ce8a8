"""Finds the format of keys or values from the options: the schema is given, or in the registry."""

from quorate.spark.errors import ValueSchemaError
from quorate.spark.options.typed_options import AVRO, JSON, PROTOBUF, ColumnOptions
from quorate.spark.typed.avro_format import AvroFormat, avro_type
from quorate.spark.typed.avro_schema import parse_avro
from quorate.spark.typed.json_format import JsonFormat
from quorate.spark.typed.json_types import json_type
from quorate.spark.typed.registry_settings import RegisteredSchema, RegistrySettings
from quorate.spark.typed.text_format import TextFormat
from quorate.spark.typed.value_formats import ValueFormat


def find_format(about: ColumnOptions, registry: RegistrySettings | None) -> ValueFormat:
    """Return the format of a column that is not left as bytes.

    Raises:
        ValueSchemaError: the schema cannot be used.
        RegistryUnavailable: the registry gave no answer within the retries, or refused.
    """
    if about.format == AVRO:
        return _avro(about, registry)
    if about.format == PROTOBUF:
        return _protobuf(about, registry)
    if about.format == JSON:
        return _json(about, registry)
    return TextFormat()


def registered_schema(about: ColumnOptions, registry: RegistrySettings) -> RegisteredSchema:
    """Return the latest schema of a column's subject.

    Raises:
        ValueSchemaError: the subject has no schema, or one of another type.
        RegistryUnavailable: the registry gave no answer within the retries, or refused.
    """
    # The client is only imported where there is a registry.
    from quorate.spark.typed.schema_registry import registry_of

    assert about.subject is not None
    schema = registry_of(registry).latest(about.subject)
    if schema.type.lower() != about.format:
        raise ValueSchemaError(
            f"option {about.name}Format is {about.format}, but subject {about.subject!r} has a "
            f"schema of type {schema.type}"
        )
    return schema


def _avro(about: ColumnOptions, registry: RegistrySettings | None) -> ValueFormat:
    if about.schema is not None:
        return AvroFormat(parse_avro(about.schema), registry)
    assert registry is not None
    return AvroFormat(avro_type(registered_schema(about, registry)), registry)


def _protobuf(about: ColumnOptions, registry: RegistrySettings | None) -> ValueFormat:
    # Only this format needs the Protobuf library.
    from quorate.spark.typed.protobuf_format import descriptors, protobuf_format
    from quorate.spark.typed.protobuf_text import descriptors_of

    if about.schema is not None:
        return protobuf_format(descriptors_of(about.schema), about.message, registry)
    assert registry is not None
    return protobuf_format(descriptors(registered_schema(about, registry)), about.message, registry)


def _json(about: ColumnOptions, registry: RegistrySettings | None) -> ValueFormat:
    if about.schema is not None:
        return JsonFormat(json_type(about.schema), registry is not None)
    assert registry is not None
    return JsonFormat(json_type(registered_schema(about, registry).text), with_prefix=True)
