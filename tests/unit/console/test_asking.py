"""Requests on behalf of a person: their bytes, who may have them carried out, and the audit log."""

from pathlib import Path
from uuid import UUID

import pytest

from quorate.broker.console.asking.console_apis import (
    CARRIED_FOR_OTHERS,
    CONSOLE_APIS,
    CREATE_ACLS,
    CREATE_TOPICS,
    FETCH,
    LIST_OFFSETS,
)
from quorate.broker.console.asking.kafka_messages import (
    decode_response,
    encode_request,
    is_carried_for_others,
)
from quorate.broker.console.asking.own_reads import AUDIT_BYTES_MAX, last_lines
from quorate.broker.console.asking.person import Person, decode_person, encode_person
from quorate.broker.kafka.api_table import api_table
from quorate.broker.kafka.wire import codec
from quorate.broker.kafka.wire.primitives import MalformedRequest
from quorate.broker.security.principal import KafkaPrincipal
from tests.support.kafka_wire import request_frame

LISTING = {
    "replica_id": -1,
    "isolation_level": 0,
    "topics": [{"name": "t", "partitions": [{"partition_index": 3, "timestamp": -1}]}],
}


def test_requests_are_those_that_another_client_encodes() -> None:
    frame = request_frame(
        LIST_OFFSETS.key,
        LIST_OFFSETS.version,
        LISTING,
        correlation_id=0,
        client_id="quorate-console",
    )
    assert encode_request(LIST_OFFSETS, LISTING) == frame


def test_responses_are_what_the_broker_encoded() -> None:
    values = {
        "throttle_time": 0,
        "topics": [
            {
                "name": "t",
                "topic_id": UUID(int=7),
                "error_code": 36,
                "error_message": "x",
                "configs": None,
            }
        ],
    }
    encoded = codec.encode_response(CREATE_TOPICS.name, CREATE_TOPICS.version, values)
    (topic,) = decode_response(CREATE_TOPICS, encoded)["topics"]
    assert (topic["name"], topic["error_code"], topic["error_message"]) == ("t", 36, "x")
    with pytest.raises(MalformedRequest):
        decode_response(CREATE_TOPICS, encoded[:9])


def test_every_api_of_the_console_is_served_in_its_version() -> None:
    table = api_table()
    for one in CONSOLE_APIS:
        served = table[one.key]
        assert served.name == one.name
        assert served.min_version <= one.version <= served.max_version


def test_only_what_another_broker_must_answer_is_carried_out_for_its_console() -> None:
    assert is_carried_for_others(encode_request(LIST_OFFSETS, LISTING))
    assert not is_carried_for_others(encode_request(CREATE_ACLS, {"creations": []}))
    assert not is_carried_for_others(b"\0")
    other_version = request_frame(LIST_OFFSETS.key, 5, LISTING)
    assert not is_carried_for_others(other_version)
    carried = {one.name for one in CARRIED_FOR_OTHERS.values()}
    assert not [one for one in carried if one.startswith(("create_", "delete_top", "alter_"))]
    assert not carried & {"delete_acls", "elect_leaders", "incremental_alter_configs"}
    assert FETCH in CARRIED_FOR_OTHERS.values()


def test_a_person_is_the_same_at_another_broker() -> None:
    person = Person(KafkaPrincipal("a:b", "User", token_authenticated=True), "10.0.0.1")
    assert decode_person(encode_person(person)) == person


def test_the_end_of_an_audit_log_is_read_within_bounds(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    assert last_lines(path, 5) == []
    path.write_text("".join(f"{number}\n" for number in range(10)))
    assert last_lines(path, 3) == ["7", "8", "9"]
    assert last_lines(path, 0) == []
    with path.open("ab") as file:
        file.write(b"x" * AUDIT_BYTES_MAX + b"\nlast\n")
    assert last_lines(path, 3) == ["last"], "the line that is cut off is left out"
