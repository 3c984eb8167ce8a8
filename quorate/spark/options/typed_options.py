"""The options of typed columns: how keys and values are decoded or encoded, and by which schema."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from quorate.spark.errors import OptionError
from quorate.spark.options.given_options import GivenOptions
from quorate.spark.options.option_declaration import Option
from quorate.spark.options.option_table import (
    ASSIGN,
    KEY_FORMAT,
    KEY_MESSAGE,
    KEY_SCHEMA,
    KEY_SUBJECT,
    MODE,
    REGISTRY_CA,
    REGISTRY_CERTIFICATE,
    REGISTRY_KEY,
    REGISTRY_TOKEN,
    REGISTRY_URL,
    REGISTRY_USER_INFO,
    RETRIES_MAX,
    RETRY_INTERVAL_MS,
    SUBSCRIBE,
    TOPIC,
    VALUE_COLUMNS,
    VALUE_FIELDS,
    VALUE_FORMAT,
    VALUE_MESSAGE,
    VALUE_SCHEMA,
    VALUE_SUBJECT,
)
from quorate.spark.retries import RetryPolicy
from quorate.spark.typed.registry_settings import RegistrySettings

if TYPE_CHECKING:
    from collections.abc import Sequence

BINARY, STRING, AVRO, PROTOBUF, JSON = "binary", "string", "avro", "protobuf", "json"
WITH_SCHEMA: Final = frozenset({AVRO, PROTOBUF, JSON})
_REGISTRY_OPTIONS: Final[tuple[Option[str | None], ...]] = (
    REGISTRY_USER_INFO, REGISTRY_TOKEN, REGISTRY_CA, REGISTRY_CERTIFICATE, REGISTRY_KEY
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ColumnOptions:
    """How the column ``key`` or ``value`` is decoded or encoded."""

    name: str
    format: str = BINARY
    schema: str | None = None
    subject: str | None = None
    """The subject of the registry; None if it cannot be told, and the schema must be given."""
    message: str | None = None
    """The name of the Protobuf message."""


@dataclass(frozen=True, slots=True)
class TypedOptions:
    """The checked options of typed columns."""

    key: ColumnOptions = ColumnOptions("key")
    value: ColumnOptions = ColumnOptions("value")
    flatten: bool = False
    """True if the fields of the value are columns of their own."""
    fields: tuple[str, ...] = ()
    """The fields of the value that are decoded; all if empty."""
    permissive: bool = False
    """True if what cannot be decoded is null, and its bytes are in a column of their own."""
    registry: RegistrySettings | None = None

    @property
    def is_typed(self) -> bool:
        """True if keys or values are anything but bytes."""
        return any(column.format != BINARY for column in (self.key, self.value))


def read_typed_options(given: GivenOptions) -> TypedOptions:
    """Check the options of typed columns.

    Raises:
        OptionError: names the option and what to do.
    """
    registry = _registry(given)
    key = _column(
        given, "key", KEY_FORMAT, KEY_SCHEMA, KEY_SUBJECT, KEY_MESSAGE, with_registry=bool(registry)
    )
    value = _column(
        given, "value", VALUE_FORMAT, VALUE_SCHEMA, VALUE_SUBJECT, VALUE_MESSAGE,
        with_registry=bool(registry),
    )  # fmt: skip
    flatten, fields = given[VALUE_COLUMNS] == "flatten", given[VALUE_FIELDS]
    for option in (VALUE_COLUMNS, VALUE_FIELDS):
        if given.has(option) and value.format not in WITH_SCHEMA:
            raise OptionError(
                f"option {option.name} needs option {VALUE_FORMAT.name} with a schema"
            )
    return TypedOptions(key, value, flatten, fields, given[MODE] == "permissive", registry)


def _column(
    given: GivenOptions,
    name: str,
    format_option: Option[str],
    schema_option: Option[str | None],
    subject_option: Option[str | None],
    message_option: Option[str | None],
    *,
    with_registry: bool,
) -> ColumnOptions:
    format_, schema = given[format_option], given[schema_option]
    if schema is not None and format_ not in WITH_SCHEMA:
        raise OptionError(
            f"option {schema_option.name} needs option {format_option.name}, as avro, protobuf or "
            "json"
        )
    if given.has(message_option) and format_ != PROTOBUF:
        raise OptionError(f"option {message_option.name} is only for {format_option.name}=protobuf")
    subject = given[subject_option]
    if subject is None and len(topics := _topics(given)) == 1:
        subject = f"{topics[0]}-{name}"
    if format_ in WITH_SCHEMA and schema is None:
        if not with_registry:
            raise OptionError(
                f"option {format_option.name}={format_} needs a schema: give {schema_option.name}, "
                f"or {REGISTRY_URL.name}"
            )
        if subject is None:
            raise OptionError(
                f"the query is about several topics: give {subject_option.name} or "
                f"{schema_option.name}"
            )
    return ColumnOptions(name, format_, schema, subject, given[message_option])


def _topics(given: GivenOptions) -> "Sequence[str]":
    """Return the topics that the options name."""
    if (topic := given[TOPIC]) is not None:
        return (topic,)
    if (subscribed := given[SUBSCRIBE]) is not None:
        return subscribed.topics
    assigned = given[ASSIGN]
    return () if assigned is None or assigned.partitions is None else tuple(assigned.partitions)


def _registry(given: GivenOptions) -> RegistrySettings | None:
    urls = given[REGISTRY_URL]
    if not urls:
        for option in _REGISTRY_OPTIONS:
            if given.has(option):
                raise OptionError(f"option {option.name} needs option {REGISTRY_URL.name}")
        return None
    if given.has(REGISTRY_KEY) and not given.has(REGISTRY_CERTIFICATE):
        raise OptionError(f"option {REGISTRY_KEY.name} needs option {REGISTRY_CERTIFICATE.name}")
    return RegistrySettings(
        urls,
        user_info=given[REGISTRY_USER_INFO] or "",
        bearer_token=given[REGISTRY_TOKEN] or "",
        ca_location=given[REGISTRY_CA] or "",
        certificate_location=given[REGISTRY_CERTIFICATE] or "",
        key_location=given[REGISTRY_KEY] or "",
        retry_policy=RetryPolicy(given[RETRIES_MAX], given[RETRY_INTERVAL_MS]),
    )
