"""The codec agrees with kio's on Kafka's layouts, and no bytes can do harm."""

import io
import struct
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_writer

from quorate.broker.kafka.api_table import api_table
from quorate.broker.kafka.wire import codec
from quorate.broker.kafka.wire.primitives import (
    MAX_ELEMENTS,
    MAX_TAGGED_FIELDS,
    Cursor,
    MalformedRequest,
    TooManyElements,
    append_uvarint,
    at_once,
)
from tests.support.examples import examples
from tests.support.kafka_wire import read_answer, request_body

APIS = api_table()
BY_SCHEMA = [
    (api.key, version)
    for api in APIS.values()
    if api.decode is None
    for version in range(api.min_version, api.max_version + 1)
    if codec.has_schema(api.name, version)
]
EVERY = [
    (api.key, version)
    for api in APIS.values()
    for version in range(api.min_version, api.max_version + 1)
    if codec.has_schema(api.name, version)
]


def body_of(key: int, version: int, data: bytes) -> Any:  # noqa: ANN401
    return APIS[key].decode_body(version, Cursor(memoryview(data)))


@pytest.mark.parametrize(("key", "version"), EVERY)
def test_first_flexible_version_is_the_schemas(key: int, version: int) -> None:
    if not codec.has_schema(APIS[key].name, version):
        assert version < APIS[key].first_flexible_version
        return
    flexible = codec.request_is_flexible(APIS[key].name, version)
    assert flexible == (version >= APIS[key].first_flexible_version)


METADATA = {"topics": [{"name": "a", "topic_id": None}, {"name": "ü", "topic_id": None}]}
ACL_FILTER = {
    "resource_type_filter": 2,
    "resource_name_filter": "t",
    "pattern_type_filter": 3,
    "principal_filter": None,
    "host_filter": "*",
    "operation": 1,
    "permission_type": 1,
}
TOPIC_ID = UUID(int=7)
REQUESTS: dict[int, dict[str, Any]] = {
    29: ACL_FILTER,
    30: {
        "creations": [
            {
                "resource_type": 2,
                "resource_name": "t",
                "resource_pattern_type": 4,
                "principal": "User:ü",
                "host": "*",
                "operation": 3,
                "permission_type": 3,
            }
        ]
    },
    31: {"filters": [ACL_FILTER]},
    17: {"mechanism": "SCRAM-SHA-256"},
    34: {"dirs": [{"path": "/d", "topics": [{"name": "t", "partitions": [0, 2]}]}]},
    35: {"topics": [{"topic": "t", "partitions": [0, 2]}]},
    50: {"users": [{"name": "alice"}]},
    51: {
        "deletions": [{"name": "bob", "mechanism": 2}],
        "upsertions": [
            {
                "name": "alice",
                "mechanism": 1,
                "iterations": 4_096,
                "salt": b"salt",
                "salted_password": b"salted",
            }
        ],
    },
    36: {"auth_bytes": b"n,,n=alice,r=abc"},
    2: {
        "replica_id": -1,
        "timeout": 1234,
        "isolation_level": 1,
        "topics": [
            {"name": "t", "partitions": [{"partition_index": 3, "timestamp": -2}]},
            {"name": "u", "partitions": []},
        ],
    },
    3: {
        **METADATA,
        "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": False,
    },
    28: {
        "transactional_id": "x",
        "group_id": "g",
        "producer_id": 7,
        "producer_epoch": 1,
        "generation_id": 4,
        "member_id": "m",
        "group_instance_id": "i",
        "topics": [
            {
                "name": "t",
                "partitions": [
                    {
                        "partition_index": 3,
                        "committed_offset": 5,
                        "committed_leader_epoch": 2,
                        "committed_metadata": "note",
                    }
                ],
            }
        ],
    },
    8: {
        "group_id": "g",
        "generation_id_or_member_epoch": 4,
        "member_id": "m",
        "group_instance_id": "i",
        "topics": [
            {
                "name": "t",
                "topic_id": TOPIC_ID,
                "partitions": [
                    {
                        "partition_index": 3,
                        "committed_offset": 41,
                        "committed_leader_epoch": 2,
                        "committed_metadata": "note",
                    },
                    {"partition_index": 4, "committed_offset": 5, "committed_metadata": None},
                ],
            }
        ],
    },
    9: {
        "group_id": "g",
        "topics": [{"name": "t", "partition_indexes": [1, 2]}],
        "groups": [
            {
                "group_id": "g",
                "member_id": "m",
                "member_epoch": 3,
                "topics": [{"name": "t", "topic_id": TOPIC_ID, "partition_indexes": [1, 2]}],
            },
            {"group_id": "h", "topics": None},
        ],
        "require_stable": True,
    },
    11: {
        "group_id": "g",
        "session_timeout": 45_000,
        "rebalance_timeout": 300_000,
        "member_id": "",
        "group_instance_id": "i",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"\0\1"}, {"name": "sticky", "metadata": b""}],
        "reason": "for fun",
    },
    12: {"group_id": "g", "generation_id": 3, "member_id": "m", "group_instance_id": None},
    13: {
        "group_id": "g",
        "member_id": "m",
        "members": [{"member_id": "m", "group_instance_id": "i", "reason": None}],
    },
    14: {
        "group_id": "g",
        "generation_id": 3,
        "member_id": "m",
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [{"member_id": "m", "assignment": b"\1\2"}],
    },
    15: {"groups": ["g", "h"], "include_authorized_operations": True},
    16: {"states_filter": ["Stable"], "types_filter": ["classic"]},
    42: {"groups_names": ["g", "h"]},
    68: {
        "group_id": "g",
        "member_id": "m",
        "member_epoch": 0,
        "instance_id": "i",
        "rack_id": None,
        "rebalance_timeout": 60_000,
        "subscribed_topic_names": ["t"],
        "subscribed_topic_regex": "t.*",
        "server_assignor": "uniform",
        "topic_partitions": [{"topic_id": UUID(int=7), "partitions": [0, 1]}],
    },
    69: {"group_ids": ["g", "h"], "include_authorized_operations": True},
    47: {
        "group_id": "g",
        "topics": [{"name": "t", "partitions": [{"partition_index": 1}]}],
    },
    27: {
        "markers": [
            {
                "producer_id": 7,
                "producer_epoch": 3,
                "transaction_result": True,
                "topics": [{"name": "t", "partition_indexes": [0, 5]}],
                "coordinator_epoch": 4,
            }
        ]
    },
    61: {"topics": [{"name": "t", "partition_indexes": [0, 5]}]},
    65: {"transactional_ids": ["x", "y"]},
    66: {"state_filters": ["Ongoing"], "producer_id_filters": [7], "duration_filter": 5},
    10: {"key": "g", "key_type": 1, "coordinator_keys": ["g", "h"]},
    18: {"client_software_name": "x", "client_software_version": "1"},
    19: {
        "topics": [
            {
                "name": "t",
                "num_partitions": 3,
                "replication_factor": 2,
                "assignments": [{"partition_index": 0, "broker_ids": [1, 2]}],
                "configs": [{"name": "k", "value": None}, {"name": "l", "value": "v"}],
            }
        ],
        "timeout": 1234,
        "validate_only": True,
    },
    20: {
        "topic_names": ["a", "b"],
        "topics": [{"name": None, "topic_id": None}, {"name": "b", "topic_id": None}],
        "timeout": 99,
    },
    22: {"transactional_id": None, "transaction_timeout": 5},
    24: {
        "v3_and_below_transactional_id": "pay",
        "v3_and_below_producer_id": 7,
        "v3_and_below_producer_epoch": 1,
        "v3_and_below_topics": [{"name": "t", "partitions": [0, 2]}],
        "transactions": [
            {
                "transactional_id": "pay",
                "producer_id": 7,
                "producer_epoch": 1,
                "verify_only": True,
                "topics": [{"name": "t", "partitions": [0, 2]}],
            }
        ],
    },
    25: {"transactional_id": "pay", "producer_id": 7, "producer_epoch": 1, "group_id": "g"},
    26: {"transactional_id": "pay", "producer_id": 7, "producer_epoch": 1, "committed": True},
    23: {
        "replica_id": -1,
        "topics": [
            {
                "topic": "t",
                "partitions": [{"partition": 1, "current_leader_epoch": 2, "leader_epoch": 3}],
            }
        ],
    },
    21: {
        "topics": [{"name": "t", "partitions": [{"partition_index": 1, "offset": -1}]}],
        "timeout": 1234,
    },
    32: {
        "resources": [
            {"resource_type": 2, "resource_name": "t", "configuration_keys": ["a", "b"]},
            {"resource_type": 4, "resource_name": "", "configuration_keys": None},
        ],
        "include_synonyms": True,
        "include_documentation": True,
    },
    33: {
        "resources": [
            {
                "resource_type": 2,
                "resource_name": "t",
                "configs": [{"name": "k", "value": "v"}, {"name": "l", "value": None}],
            }
        ],
        "validate_only": True,
    },
    37: {
        "topics": [
            {"name": "t", "count": 3, "assignments": [{"broker_ids": [1, 2]}]},
            {"name": "u", "count": 4, "assignments": None},
        ],
        "timeout": 1234,
        "validate_only": True,
    },
    38: {
        "owner_principal_type": "User",
        "owner_principal_name": None,
        "renewers": [{"principal_type": "User", "principal_name": "bob"}],
        "max_lifetime": -1,
    },
    39: {"hmac": b"secret", "renew_period": 2**40},
    40: {"hmac": b"", "expiry_time_period": -1},
    41: {"owners": [{"principal_type": "User", "principal_name": "bob"}]},
    43: {
        "election_type": 1,
        "topic_partitions": [{"topic": "t", "partitions": [0, 7]}],
        "timeout": 1234,
    },
    55: {"topics": [{"topic_name": "t", "partitions": [{"partition_index": 1}]}]},
    71: {"client_instance_id": UUID(int=7)},
    72: {
        "client_instance_id": UUID(int=7),
        "subscription_id": -3,
        "terminating": True,
        "compression_type": 4,
        "metrics": b"otlp",
    },
    64: {"broker_id": 7},
    74: {"resource_types": [2, 32]},
    80: {
        "cluster_id": "c",
        "timeout": 1234,
        "voter_id": 4,
        "voter_directory_id": UUID(int=5),
        "listeners": [{"name": "RAFT", "host": "h", "port": 65_535}],
        "ack_when_committed": False,
    },
    81: {"cluster_id": "c", "voter_id": 4, "voter_directory_id": UUID(int=5)},
    75: {
        "topics": [{"name": "t"}, {"name": "u"}],
        "response_partition_limit": 7,
        "cursor": {"topic_name": "t", "partition_index": 3},
    },
    57: {
        "timeout": 1234,
        "feature_updates": [
            {
                "feature": "inter_broker_protocol",
                "max_version_level": 2,
                "allow_downgrade": True,
                "upgrade_type": 2,
            }
        ],
        "validate_only": True,
    },
    44: {
        "resources": [
            {
                "resource_type": 4,
                "resource_name": "1",
                "configs": [{"name": "k", "config_operation": 3, "value": "v"}],
            }
        ],
        "validate_only": True,
    },
    45: {
        "timeout": 1234,
        "allow_replication_factor_change": False,
        "topics": [
            {
                "name": "t",
                "partitions": [
                    {"partition_index": 0, "replicas": [1, 2]},
                    {"partition_index": 1, "replicas": None},
                ],
            }
        ],
    },
    46: {"timeout": 1234, "topics": [{"name": "t", "partition_indexes": [0, 7]}]},
    48: {
        "components": [
            {"entity_type": "user", "match_type": 0, "match": "anna"},
            {"entity_type": "client-id", "match_type": 1, "match": None},
        ],
        "strict": True,
    },
    49: {
        "entries": [
            {
                "entity": [{"entity_type": "user", "entity_name": None}],
                "ops": [{"key": "producer_byte_rate", "value": 1.5, "remove": False}],
            }
        ],
        "validate_only": True,
    },
    76: {
        "group_id": "g",
        "member_id": "m",
        "member_epoch": -1,
        "rack_id": None,
        "subscribed_topic_names": ["t", "u"],
    },
    77: {"group_ids": ["g", "h"], "include_authorized_operations": True},
    83: {
        "group_id": "g",
        "topics": [
            {
                "topic_id": UUID(int=5),
                "partitions": [{"partition": 1, "state_epoch": 2, "start_offset": -1}],
            }
        ],
    },
    84: {
        "group_id": "g",
        "topics": [{"topic_id": UUID(int=5), "partitions": [{"partition": 1, "leader_epoch": 3}]}],
    },
    85: {
        "group_id": "g",
        "topics": [
            {
                "topic_id": UUID(int=5),
                "partitions": [
                    {
                        "partition": 1,
                        "state_epoch": 2,
                        "leader_epoch": 3,
                        "start_offset": 4,
                        "delivery_complete_count": 5,
                        "state_batches": [
                            {
                                "first_offset": 4,
                                "last_offset": 6,
                                "delivery_state": 2,
                                "delivery_count": 1,
                            }
                        ],
                    }
                ],
            }
        ],
    },
    86: {"group_id": "g", "topics": [{"topic_id": UUID(int=5), "partitions": [{"partition": 1}]}]},
    87: {
        "group_id": "g",
        "topics": [{"topic_id": UUID(int=5), "partitions": [{"partition": 1, "leader_epoch": 3}]}],
    },
    90: {
        "groups": [
            {"group_id": "g", "topics": [{"topic_name": "t", "partitions": [0, 7]}]},
            {"group_id": "h", "topics": None},
        ]
    },
    91: {
        "group_id": "g",
        "topics": [{"topic_name": "t", "partitions": [{"partition_index": 0, "start_offset": 9}]}],
    },
    92: {"group_id": "g", "topics": [{"topic_name": "t"}, {"topic_name": "u"}]},
    60: {
        "include_cluster_authorized_operations": True,
        "endpoint_type": 2,
        "include_fenced_brokers": True,
    },
}


def matches(expected: Any, decoded: Any) -> bool:  # noqa: ANN401
    """Return whether the decoded fields are those that were sent, if the version has them."""
    if isinstance(decoded, dict):
        return all(matches(expected[k], v) for k, v in decoded.items() if k in expected)
    if isinstance(decoded, list):
        return len(expected) == len(decoded) and all(map(matches, expected, decoded))
    return bool(expected == decoded or (expected is None and getattr(decoded, "int", 1) == 0))


@pytest.mark.parametrize(("key", "version"), BY_SCHEMA)
def test_what_kio_writes_is_read_back(key: int, version: int) -> None:
    data = request_body(key, version, REQUESTS[key])
    cursor = Cursor(memoryview(data))
    decoded = APIS[key].decode_body(version, cursor)
    assert matches(REQUESTS[key], decoded)
    assert cursor.offset == len(data)
    in_steps = Cursor(memoryview(data))
    assert at_once(APIS[key].decode_body_in_steps(version, in_steps)) == decoded
    assert (in_steps.offset, in_steps.elements) == (cursor.offset, cursor.elements)


@pytest.mark.parametrize(("key", "version"), BY_SCHEMA)
def test_a_request_cut_short_is_malformed(key: int, version: int) -> None:
    data = request_body(key, version, REQUESTS[key])
    for length in range(len(data)):
        with pytest.raises(MalformedRequest):
            body_of(key, version, data[:length])


@pytest.mark.parametrize(
    ("key", "version"),
    [one for one in EVERY if codec.response_has_error_code(APIS[one[0]].name, one[1])],
)
def test_every_answer_can_say_that_all_of_it_failed(key: int, version: int) -> None:
    body = codec.encode_failure(APIS[key].name, version, 34, "said so")
    header = load_response_schema(key, version).__header_schema__
    frame = bytes(4) + (b"\0" if header.__flexible__ else b"") + body
    assert read_answer(key, version, frame)[1].error_code == 34


def test_a_null_in_an_array_that_may_itself_be_null_is_malformed() -> None:
    """In DescribeConfigs a null array means all configuration keys, but a key may not be null."""
    values = {
        "resources": [
            {"resource_type": 2, "resource_name": "t", "configuration_keys": ["key"]},
        ],
        "include_synonyms": False,
        "include_documentation": False,
    }
    data = request_body(32, 4, values)
    at = data.index(b"\x04key")
    with pytest.raises(MalformedRequest, match="configuration_keys is null"):
        body_of(32, 4, data[:at] + b"\x00" + data[at + 4 :])


def try_to_read(case: tuple[int, int], data: bytes) -> None:
    """Decoding it may raise only MalformedRequest."""
    try:
        body_of(*case, data)
    except MalformedRequest:
        return


@given(case=st.sampled_from(EVERY), data=st.binary(max_size=200))
def test_garbage_is_malformed_or_harmless(case: tuple[int, int], data: bytes) -> None:
    try_to_read(case, data)


@given(case=st.sampled_from(BY_SCHEMA), at=st.integers(0), byte=st.integers(0, 255))
def test_a_flipped_byte_is_malformed_or_harmless(case: tuple[int, int], at: int, byte: int) -> None:
    data = bytearray(request_body(*case, REQUESTS[case[0]]))
    if data:
        data[at % len(data)] = byte
    try_to_read(case, bytes(data))


@pytest.mark.parametrize("version", [1, 12])
def test_an_array_longer_than_its_frame_is_refused_unallocated(version: int) -> None:
    """kio's own decoder aborts the process on the flexible form of this."""
    length = b"\x7f\xff\xff\xff" if version == 1 else b"\xff\xff\xff\xff\x07"
    with pytest.raises(MalformedRequest, match="array of 214748364"):
        body_of(3, version, length + bytes(20))


def test_more_elements_than_any_request_needs_are_refused() -> None:
    count = MAX_ELEMENTS + 1
    data = struct.pack(">i", count) + b"\0\0" * count
    with pytest.raises(MalformedRequest, match="array elements"):
        body_of(3, 1, data)


def test_more_tagged_fields_than_any_request_needs_are_refused() -> None:
    """ApiVersions 3: two names, then the tagged fields, each a tag and no bytes."""
    names = b"\2a\2a"
    body_of(18, 3, names + bytes([MAX_TAGGED_FIELDS]) + b"\0\0" * MAX_TAGGED_FIELDS)
    for count, prefix in ((MAX_TAGGED_FIELDS + 1, b"\x21"), (5 << 20, b"\x80\x80\xc0\2")):
        with pytest.raises(TooManyElements, match="tagged fields"):
            body_of(18, 3, names + prefix + b"\0\0" * count)


def test_issue_17_tagged_fields_count_as_elements() -> None:
    """They cost as much. DescribeGroups 5: an array of names, a flag, then the tagged fields."""
    data = b"\3\2a\2b\0" + b"\4" + b"\0\0" * 4
    for elements, is_enough in ((6, True), (5, False)):
        cursor = Cursor(memoryview(data), elements_max=elements)
        if is_enough:
            APIS[15].decode_body(5, cursor)
        else:
            with pytest.raises(TooManyElements, match="at most 5"):
                APIS[15].decode_body(5, cursor)


def test_null_where_it_is_not_allowed_is_refused() -> None:
    with pytest.raises(MalformedRequest, match="name is null"):
        body_of(3, 1, struct.pack(">ih", 1, -1))


def test_unknown_tagged_fields_are_skipped() -> None:
    data = request_body(3, 12, REQUESTS[3])
    assert data.endswith(b"\0")
    tagged = data[:-1] + b"\x02" + b"\x05\x03abc" + b"\x90\x4e\x00"
    assert matches(REQUESTS[3], body_of(3, 12, tagged))


@given(st.integers(0, 2**31 - 1))
def test_uvarint_round_trip(value: int) -> None:
    out = bytearray()
    append_uvarint(out, value)
    cursor = Cursor(memoryview(out))
    assert cursor.uvarint() == value
    assert cursor.offset == len(out)


def test_extra_tags_are_written_in_order() -> None:
    broker: dict[str, Any] = {"broker_id": 1, "host": "h", "port": 2}
    values = {"throttle_time": 0, "error_code": 0, "cluster_id": "c", "brokers": [broker]}
    without = codec.encode_response("describe_cluster", 0, values)
    _, response = read_answer(60, 0, bytes(5) + without)
    assert response.brokers[0].host == "h"
    broker[codec.TAGS] = {10_000: b"x:1", 3: b""}
    tagged = codec.encode_response("describe_cluster", 0, values)
    rack_and_no_tags, operations = b"\x00\x00", b"\x80\x00\x00\x00\x00"
    assert without.endswith(rack_and_no_tags + operations)
    assert tagged == without[:-6] + b"\x02\x03\x00\x90\x4e\x03x:1" + operations


@pytest.mark.parametrize(
    ("name", "key", "version"), [("find_coordinator", 10, 2), ("fetch", 1, 12)]
)
def test_a_failure_of_the_whole_request_can_be_read(name: str, key: int, version: int) -> None:
    header = bytes(5 if codec.request_is_flexible(name, version) else 4)
    _, response = read_answer(key, version, header + codec.encode_failure(name, version, 35, "no"))
    assert response.error_code == 35


def test_a_missing_field_without_default_is_a_fault_of_ours() -> None:
    with pytest.raises(KeyError, match="cluster_id"):
        codec.encode_response("describe_cluster", 0, {"throttle_time": 0, "error_code": 0})


@pytest.mark.parametrize(("key", "version"), BY_SCHEMA)
@settings(max_examples=examples(4))
@given(data=st.data())
def test_whatever_kio_can_write_is_read(key: int, version: int, data: st.DataObject) -> None:
    schema = load_request_schema(key, version)
    out = io.BytesIO()
    entity_writer(schema)(out, data.draw(st.from_type(schema)))
    cursor = Cursor(memoryview(out.getvalue()))
    APIS[key].decode_body(version, cursor)
    assert cursor.offset == len(out.getvalue())


@pytest.mark.parametrize("flexible", [True, False])
def test_a_string_is_no_longer_than_kafkas(flexible: bool) -> None:
    def encoded(length: int) -> bytearray:
        out = bytearray()
        if flexible:
            append_uvarint(out, length + 1)
        else:
            out += length.to_bytes(2, "big")
        return out + b"x" * length

    assert Cursor(memoryview(encoded(0x7FFF))).text(flexible=flexible) == "x" * 0x7FFF
    with pytest.raises(MalformedRequest):
        Cursor(memoryview(encoded(0x8000))).text(flexible=flexible)
