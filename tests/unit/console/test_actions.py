"""The Kafka requests that forms become, and the sentences for forms that become none."""

from collections.abc import Mapping
from typing import Any, cast

import immutables
import pytest

from quorate.broker.console.actions.action import CarryOut
from quorate.broker.console.actions.form import BadForm, Form
from quorate.broker.console.actions.quota_actions import remove_quota, set_quota
from quorate.broker.console.actions.replica_actions import cancel_moves, move_replicas
from quorate.broker.console.actions.user_actions import change_password, create_user, delete_user
from quorate.broker.console.asking.console_apis import ConsoleApi
from quorate.broker.console.asking.kafka_messages import encode_request
from quorate.broker.console.asking.person import Person
from quorate.broker.console.console_parts import ConsoleParts
from quorate.broker.security.principal import KafkaPrincipal
from quorate.broker.security.scram import BY_NUMBER, credential, password_fits
from quorate.metadata_log.partitions import Reassignment
from quorate_proto.v1 import errors_pb2

PERSON = Person(KafkaPrincipal("root", "User"), "127.0.0.1")
SCRAM = {"mechanism": 1, "iterations": 4_096}


class _Parts:
    """The parts of a broker whose cluster answers with what a test gives, and keeps what it was
    asked.
    """

    def __init__(self, **answers: Mapping[str, Any]) -> None:
        self.answers = answers
        self.asked: dict[str, Mapping[str, Any]] = {}
        self.requests = self
        self.image = self
        self.reassignments: immutables.Map[str, Any] = immutables.Map()

    async def ask(
        self, person: Person, api: ConsoleApi, body: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        assert person is PERSON
        encode_request(api, dict(body))
        self.asked[api.name] = body
        return self.answers[api.name]

    def random_bytes(self, count: int) -> bytes:
        return b"s" * count

    def rights(self, _: Person) -> "_Parts":
        return self

    def may_topic(self, *_: object) -> bool:
        return True


async def carried_out(action: CarryOut, parts: _Parts, **fields: str) -> list[str]:
    """Carry out an action, and return what became of it, a line for each outcome."""
    outcomes = await action(cast(ConsoleParts, parts), PERSON, Form(fields))
    return [f"{one.thing}: {one.error or one.done}" for one in outcomes]


def described(*infos: Mapping[str, int], code: int = 0) -> Mapping[str, Any]:
    result = {"user": "bob", "error_code": code, "error_message": None, "credential_infos": infos}
    return {"error_code": 0, "error_message": None, "results": [result]}


def altered(field: str = "results") -> Mapping[str, Any]:
    return {field: [{"user": "bob", "error_code": 0, "error_message": None}]}


async def test_a_quota_is_set_and_removed_for_whom_the_form_says() -> None:
    parts = _Parts(alter_client_quotas=altered("entries"))
    fields = {"user": "alice", "default_client_id": "1", "key": "producer_byte_rate"}
    assert await carried_out(set_quota, parts, value="1e6", **fields) == [
        "user alice, the default client-id: producer_byte_rate is 1000000"
    ]
    (entry,) = parts.asked["alter_client_quotas"]["entries"]
    assert entry["entity"] == [
        {"entity_type": "user", "entity_name": "alice"},
        {"entity_type": "client-id", "entity_name": None},
    ]
    assert entry["ops"] == [{"key": "producer_byte_rate", "value": 1e6, "remove": False}]
    await carried_out(remove_quota, parts, **fields)
    (entry,) = parts.asked["alter_client_quotas"]["entries"]
    assert entry["ops"][0]["remove"] is True


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"value": "1"}, "a user, a client id, both, or an address"),
        ({"user": "a", "default_user": "1", "value": "1"}, "not both"),
        *(({"user": "a", "value": bad}, "above 0") for bad in ("0", "-1", "nan", "inf", "1 x")),
        ({"user": "a"}, "value is missing"),
    ],
)
async def test_a_bad_quota_is_refused_before_anything_is_asked(
    fields: dict[str, str], said: str
) -> None:
    parts = _Parts()
    with pytest.raises(BadForm, match=said):
        await carried_out(set_quota, parts, key="producer_byte_rate", **fields)


async def test_a_new_user_has_a_credential_for_each_mechanism_that_its_password_fits() -> None:
    unknown = described(code=errors_pb2.RESOURCE_NOT_FOUND)
    parts = _Parts(describe_user_scram_credentials=unknown, alter_user_scram_credentials=altered())
    fields = {"user": "bob", "password": "pass word", "again": "pass word", "iterations": "4096"}
    assert await carried_out(create_user, parts, **fields) == ["user bob: added"]
    sent = parts.asked["alter_user_scram_credentials"]["upsertions"]
    assert [one["mechanism"] for one in sent] == [1, 2]
    for one in sent:
        mechanism = BY_NUMBER[one["mechanism"]]
        stored = credential(mechanism, one["salted_password"], one["salt"], one["iterations"])
        assert password_fits(mechanism, stored, "pass word")
    assert "pass word" not in str(parts.asked)


async def test_a_password_is_changed_for_the_mechanisms_that_the_user_has() -> None:
    parts = _Parts(
        describe_user_scram_credentials=described(SCRAM), alter_user_scram_credentials=altered()
    )
    await carried_out(change_password, parts, user="bob", password="x", again="x")
    (sent,) = parts.asked["alter_user_scram_credentials"]["upsertions"]
    assert (sent["mechanism"], sent["iterations"]) == (1, 4_096)


async def test_a_deleted_user_loses_all_mechanisms() -> None:
    parts = _Parts(
        describe_user_scram_credentials=described(SCRAM, {**SCRAM, "mechanism": 2}),
        alter_user_scram_credentials=altered(),
    )
    await carried_out(delete_user, parts, user="bob", confirmed="bob")
    gone = parts.asked["alter_user_scram_credentials"]["deletions"]
    assert [one["mechanism"] for one in gone] == [1, 2]


NEW_BOB = {"user": "bob", "password": "x", "again": "x", "iterations": "4096"}


@pytest.mark.parametrize(
    ("action", "fields", "said"),
    [
        (create_user, NEW_BOB, "is a user bob already"),
        (create_user, NEW_BOB | {"again": "y"}, "two passwords differ"),
        (create_user, NEW_BOB | {"password": ""}, "password is missing"),
        (create_user, NEW_BOB | {"password": "x" * 1_025}, "more than 1024 characters"),
        (create_user, NEW_BOB | {"mechanism": "MD5"}, "the mechanisms are"),
        (delete_user, {"user": "bob", "confirmed": "bo"}, "type bob to confirm"),
    ],
)
async def test_a_bad_form_about_a_user_changes_nothing(
    action: CarryOut, fields: dict[str, str], said: str
) -> None:
    parts = _Parts(describe_user_scram_credentials=described(SCRAM))
    with pytest.raises(BadForm, match=said):
        await carried_out(action, parts, **fields)


@pytest.mark.parametrize("action", [change_password, delete_user])
async def test_an_unknown_user_is_neither_changed_nor_deleted(action: CarryOut) -> None:
    unknown = described(code=errors_pb2.RESOURCE_NOT_FOUND)
    parts = _Parts(describe_user_scram_credentials=unknown)
    with pytest.raises(BadForm, match="there is no user bob"):
        await carried_out(action, parts, confirmed="bob", **NEW_BOB)


def reassigned(*codes: int) -> Mapping[str, Any]:
    results = [
        {"partition_index": number, "error_code": code, "error_message": "why"}
        for number, code in enumerate(codes)
    ]
    responses = [{"name": "orders", "partitions": results}]
    return {"error_code": 0, "error_message": None, "responses": responses}


async def test_a_move_tells_what_is_refused_by_partition() -> None:
    refused = errors_pb2.INVALID_REPLICA_ASSIGNMENT
    parts = _Parts(alter_partition_reassignments=reassigned(0, refused, 0))
    assert await carried_out(move_replicas, parts, topic="orders", plan="0: 2,1\n1: 9\n2: 1") == [
        "2 partitions of orders: on the way to their new replicas",
        "orders-1: INVALID_REPLICA_ASSIGNMENT: why",
    ]
    (topic,) = parts.asked["alter_partition_reassignments"]["topics"]
    assert [one["replicas"] for one in topic["partitions"]] == [[2, 1], [9], [1]]


async def test_all_moves_of_a_topic_are_cancelled_or_one() -> None:
    parts = _Parts(alter_partition_reassignments=reassigned(0))
    with pytest.raises(BadForm, match="no partition of orders is being moved"):
        await carried_out(cancel_moves, parts, topic="orders")
    move = Reassignment(target=(), original=(), version=cast(Any, 1))
    parts.reassignments = immutables.Map(orders=immutables.Map({4: move, 3: move}))
    for asked, cancelled in (("", [3, 4]), ("7", [7])):
        await carried_out(cancel_moves, parts, topic="orders", partition=asked)
        (topic,) = parts.asked["alter_partition_reassignments"]["topics"]
        assert [one["partition_index"] for one in topic["partitions"]] == cancelled
        assert all(one["replicas"] is None for one in topic["partitions"])


async def test_what_is_deleted_is_what_has_that_name_with_its_blanks() -> None:
    parts = _Parts(alter_client_quotas=altered("entries"))
    await carried_out(remove_quota, parts, user=" alice", key="producer_byte_rate")
    (entry,) = parts.asked["alter_client_quotas"]["entries"]
    assert entry["entity"] == [{"entity_type": "user", "entity_name": " alice"}]
