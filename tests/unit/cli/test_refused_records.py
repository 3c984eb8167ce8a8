"""What ``quorate produce`` says of a record that a broker refused."""

import pytest

from quorate.cli.records.refused_records import RefusedRecord, why_refused

VALUES = {"cleanup.policy": "delete", "quorate.value.schema.validation": "true"}
KEYS = {"cleanup.policy": "delete", "quorate.key.schema.validation": "true"}
NAMES_SEVEN = b"\0\0\0\0\x07rest"


@pytest.mark.parametrize(
    ("record", "configs", "said"),
    [
        (RefusedRecord(3, None, b"one"), VALUES, "record 3 was refused: the value names no"),
        (RefusedRecord(1, None, b"\0\0"), VALUES, "the value names no schema"),
        (RefusedRecord(1, None, NAMES_SEVEN), VALUES, "the value names schema 7, which the"),
        (RefusedRecord(1, b"k", b"v"), KEYS, "the key names no schema"),
        (RefusedRecord(1, NAMES_SEVEN, b"v"), {**KEYS, **VALUES}, "refused: the value names no"),
        (RefusedRecord(1, None, None), VALUES, "the log of the broker"),
        (RefusedRecord(2, None, b"v"), {"cleanup.policy": "compact"}, "record 2 has no key"),
        (RefusedRecord(2, None, b"v"), {"cleanup.policy": "compact,delete"}, "cleanup.policy"),
        (RefusedRecord(1, b"k", b"v"), {"cleanup.policy": "compact"}, "the log of the broker"),
        (RefusedRecord(1, None, b"v"), {}, "quorate configs --describe"),
        (RefusedRecord(1, None, b"v"), {}, "quorate.value.schema.validation"),
    ],
)
def test_the_reason_is_named_with_its_setting(
    record: RefusedRecord, configs: dict[str, str], said: str
) -> None:
    assert said in why_refused(record, "orders", configs)


def test_what_to_do_is_said() -> None:
    said = why_refused(RefusedRecord(1, None, b"one"), "orders", VALUES)
    assert "quorate.value.schema.validation=true: produce with a serializer" in said
