"""Chooses the values in the fields of a hostile request: things that exist, that do not, and
extremes.

A broker does most for what exists, so every name and code has a value here that passes validation.
``shapes`` says how many of them are sent; nothing here is about a single API, except where one name
means different things in different places.
"""

import struct
from collections.abc import Mapping
from typing import Final, Literal

from tests.support.raw_client import record_batch

Kind = Literal["real", "unknown", "distinct", "long", "least", "max", "min"]
KINDS: Final[tuple[Kind, ...]] = ("real", "unknown", "distinct", "long", "least", "max", "min")
"""real: one that exists, the same again and again. unknown: one that does not. distinct: another
each time. long: the longest names. least: empty and null, the fewest bytes. max, min: extreme
numbers for something that exists.
"""

Value = str | bytes | int | float | bool | None

VICTIM: Final = "victim"
"""A topic, group, transactional id and user that exist, and are not those of the other clients."""
VICTIM_BROKER: Final = 1
NAME_BYTES_MAX: Final = 32_767

_SIZES: Final[Mapping[str, str]] = {
    "bool": ">?", "int8": ">b", "int16": ">h", "int32": ">i", "int64": ">q", "uint16": ">H",
    "uint32": ">I", "float64": ">d", "error_code": ">h", "timedelta_i32": ">i",
    "timedelta_i64": ">q", "datetime_i64": ">q",
}  # fmt: skip
_RANGES: Final[Mapping[str, tuple[Value, Value]]] = {
    ">?": (False, True), ">b": (-(2**7), 2**7 - 1), ">h": (-(2**15), 2**15 - 1),
    ">i": (-(2**31), 2**31 - 1), ">q": (-(2**63), 2**63 - 1), ">H": (0, 2**16 - 1),
    ">I": (0, 2**32 - 1), ">d": (-1.7e308, 1.7e308),
}  # fmt: skip

_REAL: Final[Mapping[str, Value]] = {
    "acks": -1, "timeout": 30_000, "records": bytes(record_batch(b"hostile")),
    "replica_id": -1, "max_wait": 100, "min_bytes": 1, "max_bytes": 50 << 20,
    "session_epoch": -1, "partition_max_bytes": 1 << 20, "current_leader_epoch": -1,
    "last_fetched_epoch": -1, "timestamp": -1, "leader_epoch": 0,
    "resource_type": 2, "resource_type_filter": 2, "resource_pattern_type": 3,
    "pattern_type_filter": 3, "operation": 3, "permission_type": 3, "resource_types": 2,
    "principal": f"User:{VICTIM}", "principal_filter": f"User:{VICTIM}", "host": "*",
    "host_filter": "*", "principal_type": "User", "owner_principal_type": "User",
    "configuration_keys": "retention.ms", "value": "86400000",
    "num_partitions": 1, "replication_factor": 1, "broker_ids": VICTIM_BROKER,
    "replicas": VICTIM_BROKER, "count": 2, "path": "/",
    "member_id": "", "group_instance_id": None, "protocol_type": "consumer",
    "protocol_name": "range", "session_timeout": 30_000, "rebalance_timeout": 1_000,
    "generation_id": -1, "generation_id_or_member_epoch": -1, "retention_time": -1,
    "committed_metadata": "", "reason": None, "states_filter": "Stable", "types_filter": "classic",
    "state_filters": "Ongoing", "duration_filter": -1, "transaction_timeout": 60_000,
    "producer_id": 1, "v3_and_below_producer_id": 1,
    "mechanism": "PLAIN", "iterations": 4_096, "salt": bytes(16), "salted_password": bytes(32),
    "auth_bytes": b"\0nobody\0wrong", "hmac": bytes(64), "max_lifetime": -1,
    "entity_type": "user", "match_type": 0, "endpoint_type": 1, "response_partition_limit": 2_000,
    "feature": "metadata_version", "max_version_level": 3, "upgrade_type": 1,
    "client_software_name": "hostile", "client_software_version": "1", "rack_id": "",
}  # fmt: skip
"""The value that a broker takes, by the field's name; what is not here is ``VICTIM`` or 0."""

_REAL_INSIDE: Final[Mapping[tuple[str, str], Value]] = {
    ("configs", "name"): "retention.ms",
    ("protocols", "name"): "range",
    ("ops", "key"): "producer_byte_rate",
    ("ops", "value"): 1e12,
    ("upsertions", "mechanism"): 1,
    ("deletions", "mechanism"): 1,
    ("topics", "topic_id"): None,
}
"""The same, where the array around the field decides."""

FIXED: Final = frozenset(
    {
        "entity_type", "mechanism", "principal_type", "protocol_type", "host", "path",
        "value", "protocol_name", "key",
    }
)  # fmt: skip
"""Fields in which another value would only be refused early: distinct names go elsewhere."""

FLAVOURS: Final[Mapping[str, tuple[Mapping[str, Value], ...]]] = {
    "describe_configs": (
        {"resource_type": 4, "resource_name": str(VICTIM_BROKER), "include_synonyms": True,
         "include_documentation": True},
        {"resource_type": 2},
    ),
    "fetch": ({"session_epoch": -1}, {"session_epoch": 0}),
    "find_coordinator": ({"key_type": 0}, {"key_type": 1}),
    "sasl_authenticate": ({}, {"auth_bytes": b"n,,n=victim,r=0123456789abcdef"}),
}  # fmt: skip
"""APIs to which more than one kind of thing can be named."""


def real(parent: str, name: str, kafka_type: str) -> Value:
    """A value that exists, for a field inside the array ``parent``, which is "" at the top."""
    if (parent, name) in _REAL_INSIDE:
        return _REAL_INSIDE[parent, name]
    if name in _REAL:
        return _REAL[name]
    return {"string": VICTIM, "bytes": b"", "records": b"", "uuid": None}.get(kafka_type, 0)


def packing(kafka_type: str) -> str | None:
    """The ``struct`` format of a number, or None if the type is none."""
    return _SIZES.get(kafka_type)


def extreme(kafka_type: str, kind: Kind) -> Value:
    least, most = _RANGES[_SIZES[kafka_type]]
    return most if kind == "max" else least


def pack(kafka_type: str, value: Value) -> bytes:
    return struct.pack(_SIZES[kafka_type], value)
