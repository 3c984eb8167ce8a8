"""The settings of a registry's client, and the schemas that it returns."""

from dataclasses import dataclass, field

from quorate.spark.retries import RetryPolicy

AVRO, PROTOBUF, JSON = "AVRO", "PROTOBUF", "JSON"
"""The types of schemas. A registry leaves the type out where it is AVRO."""


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    """Where the registry is, and who asks. The object travels to the executors by pickle."""

    urls: tuple[str, ...]
    user_info: str = field(default="", repr=False)
    """``user:password`` of basic authentication."""
    bearer_token: str = field(default="", repr=False)
    ca_location: str = ""
    certificate_location: str = ""
    key_location: str = ""
    retry_policy: RetryPolicy = RetryPolicy(5, 100)  # noqa: RUF009 - frozen


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema of the registry."""

    schema_id: int
    """0 if the schema was asked for by a reference, which need not say its id."""
    type: str
    text: str
    references: tuple["ReferencedSchema", ...] = ()
    """All schemas that it uses; those that are used by others come first."""


@dataclass(frozen=True, slots=True)
class ReferencedSchema:
    """A schema that another one uses, under the name that it uses."""

    name: str
    text: str
