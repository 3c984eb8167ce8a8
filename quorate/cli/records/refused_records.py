"""Says why brokers refused a record, and what to do about it.

A broker names each record that it refuses, and the reason, but librdkafka passes on the error code
alone (INVALID_RECORD). So the record is looked at again here, by the configuration of its topic.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

    from quorate.client.admin import AdminClient

KEY_VALIDATION: Final = "quorate.key.schema.validation"
VALUE_VALIDATION: Final = "quorate.value.schema.validation"
CLEANUP_POLICY: Final = "cleanup.policy"

_PREFIX_BYTES: Final = 5
"""A zero byte, and the id of a schema."""


class RefusedRecord(NamedTuple):
    """A record that was refused. ``number`` counts those of the input, from 1."""

    number: int
    key: bytes | None
    value: bytes | None


def is_refusal(error: "KafkaError") -> bool:
    """Return whether the broker found something wrong with this very record.

    Records of the same batch with which nothing is wrong fail with another error.
    """
    return error.name() == "INVALID_RECORD"


def why_refused(record: RefusedRecord, topic: str, configs: Mapping[str, str]) -> str:
    """Return why a broker refuses the record, by the configuration of its topic, and what to do.

    ``configs`` is empty if the user may not see the configuration.
    """
    if not configs:
        return (
            f"record {record.number} was refused: `quorate configs --describe --entity-type topics "
            f"--entity-name {topic}` shows what the topic validates, in {VALUE_VALIDATION}, "
            f"{KEY_VALIDATION} and {CLEANUP_POLICY}"
        )
    if "compact" in configs.get(CLEANUP_POLICY, "") and record.key is None:
        return (
            f"record {record.number} has no key, and the topic is compacted ({CLEANUP_POLICY}): "
            "give the records keys, as with --key-separator"
        )
    validated = [
        (part, data, setting)
        for part, data, setting in (
            ("key", record.key, KEY_VALIDATION),
            ("value", record.value, VALUE_VALIDATION),
        )
        if configs.get(setting) == "true" and data is not None
    ]
    # Whether the registry has an id is not known here: a part that names none is the reason.
    validated = [one for one in validated if _schema_id(one[1]) is None] or validated
    if not validated:
        return f"record {record.number} was refused: the log of the broker says why"
    found = " and ".join(f"the {part} {_what_it_names(data)}" for part, data, _ in validated)
    settings = " and ".join(f"{setting}=true" for _, _, setting in validated)
    return (
        f"record {record.number} was refused: {found}, and the topic has {settings}: produce with "
        "a serializer of the schema registry, or change the setting with `quorate configs --alter`"
    )


def _what_it_names(data: bytes) -> str:
    schema_id = _schema_id(data)
    if schema_id is None:
        return "names no schema (a zero byte and the id of the schema come first)"
    return f"names schema {schema_id}, which the registry may not have"


def _schema_id(data: bytes) -> int | None:
    if len(data) < _PREFIX_BYTES or data[0] != 0:
        return None
    return int.from_bytes(data[1:_PREFIX_BYTES], "big")


def validation_of(admin: "AdminClient", topic: str) -> dict[str, str]:
    """Return the configuration of a topic that validates records. It is empty if the user may not
    see it, or no broker tells it."""
    from quorate.client.errors import QuorateError
    from quorate.client.results import ConfigEntity

    names = [KEY_VALIDATION, VALUE_VALIDATION, CLEANUP_POLICY]
    try:
        (found,) = admin.describe_configs([ConfigEntity("topic", topic, names)])
        found.raise_for_error()
    except QuorateError:
        return {}
    return {one.name: str(one.value) for one in found.entries}
