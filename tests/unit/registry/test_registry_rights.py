"""The right that each request of the registry asks for, and what a client without it learns."""

import json

import pytest

from quorate.broker.registry.operations.table import OPERATIONS
from tests.support.registry import AllowedRights, Refused, TriedRegistry

SCHEMA = {"schema": '"int"'}
TOPIC = "orders"
RIGHTS = {
    # operation: the URL, the body, the operation and where
    "GetVersions": ("/subjects/orders-value/versions", None, "DESCRIBE", TOPIC),
    "GetVersion": ("/subjects/orders-value/versions/1", None, "DESCRIBE", TOPIC),
    "GetVersionText": ("/subjects/orders-value/versions/1/schema", None, "DESCRIBE", TOPIC),
    "GetReferencedBy": (
        "/subjects/orders-value/versions/1/referencedby",
        None,
        "DESCRIBE",
        TOPIC,
    ),
    "GetMetadata": ("/subjects/orders-value/metadata", None, "DESCRIBE", TOPIC),
    "LookUpSchema": ("/subjects/orders-value", SCHEMA, "DESCRIBE", TOPIC),
    "CheckCompatibility": (
        "/compatibility/subjects/orders-value/versions",
        SCHEMA,
        "DESCRIBE",
        TOPIC,
    ),
    "CheckCompatibilityWithVersion": (
        "/compatibility/subjects/orders-value/versions/1",
        SCHEMA,
        "DESCRIBE",
        TOPIC,
    ),
    "RegisterSchema": ("/subjects/orders-value/versions", SCHEMA, "WRITE", TOPIC),
    "DeleteSubject": ("/subjects/orders-value", None, "DELETE", TOPIC),
    "DeleteVersion": ("/subjects/orders-value/versions/1", None, "DELETE", TOPIC),
    "GetSubjectConfig": ("/config/orders-value", None, "DESCRIBE_CONFIGS", TOPIC),
    "PutSubjectConfig": ("/config/orders-value", {}, "ALTER_CONFIGS", TOPIC),
    "DeleteSubjectConfig": ("/config/orders-value", None, "ALTER_CONFIGS", TOPIC),
    "GetSubjectMode": ("/mode/orders-value", None, "DESCRIBE_CONFIGS", TOPIC),
    "PutSubjectMode": ("/mode/orders-value", {"mode": "READWRITE"}, "ALTER_CONFIGS", TOPIC),
    "DeleteSubjectMode": ("/mode/orders-value", None, "ALTER_CONFIGS", TOPIC),
    "GetConfig": ("/config", None, "DESCRIBE_CONFIGS", "cluster"),
    "PutConfig": ("/config", {}, "ALTER_CONFIGS", "cluster"),
    "DeleteConfig": ("/config", None, "ALTER_CONFIGS", "cluster"),
    "GetMode": ("/mode", None, "DESCRIBE_CONFIGS", "cluster"),
    "PutMode": ("/mode", {"mode": "READWRITE"}, "ALTER_CONFIGS", "cluster"),
    "DeleteMode": ("/mode", None, "ALTER_CONFIGS", "cluster"),
}
FILTERED = {
    # operation: the URL, and the answer to a client that may see nothing
    "GetSubjects": ("/subjects", []),
    "GetSchemas": ("/schemas", []),
    "GetContexts": ("/contexts", ["."]),
    "GetSchemaById": ("/schemas/ids/1", Refused(404, 40403)),
    "GetSchemaTextById": ("/schemas/ids/1/schema", Refused(404, 40403)),
    "GetSubjectsOfId": ("/schemas/ids/1/subjects", Refused(404, 40403)),
    "GetVersionsOfId": ("/schemas/ids/1/versions", Refused(404, 40403)),
    "GetSchemaByGuid": ("/schemas/guids/{guid}", Refused(404, 40403)),
}
METHODS = {one.name: one.method for one in OPERATIONS}


@pytest.fixture
def registry() -> TriedRegistry:
    registry = TriedRegistry()
    registry.register("orders-value", '"int"')
    registry.register("secret-value", '"string"')
    return registry


def test_every_request_is_in_a_table() -> None:
    assert set(RIGHTS) | set(FILTERED) | {"GetSchemaTypes"} == set(METHODS)


@pytest.mark.parametrize("name", RIGHTS)
def test_the_right_is_asked_for_and_is_enough(registry: TriedRegistry, name: str) -> None:
    url, body, operation, where = RIGHTS[name]
    others = frozenset(
        (one, place)
        for one in ("DESCRIBE", "WRITE", "DELETE", "ALTER_CONFIGS", "DESCRIBE_CONFIGS", "READ")
        for place in ("cluster", TOPIC)
        if (one, place) != (operation, where)
    )
    refused = registry.ask(METHODS[name], url, body, rights=AllowedRights(others))
    assert refused == Refused(403, 40301)
    enough = AllowedRights(frozenset({(operation, where)}))
    assert registry.ask(METHODS[name], url, body, rights=enough) != Refused(403, 40301)


@pytest.mark.parametrize("name", FILTERED)
def test_what_may_not_be_seen_is_not_there(registry: TriedRegistry, name: str) -> None:
    url, nothing = FILTERED[name]
    guid = registry.ask("GET", "/schemas")[0]["guid"]
    url = url.format(guid=guid)
    assert registry.ask("GET", url, rights=AllowedRights(frozenset())) == nothing
    sees = AllowedRights(frozenset({("DESCRIBE", TOPIC)}))
    shown = json.dumps(registry.ask("GET", url, rights=sees))
    assert "secret" not in shown
    assert "403" not in shown


@pytest.mark.parametrize(
    ("subject", "topic"),
    [
        ("orders-value", "orders"),
        ("orders-key", "orders"),
        ("orders", "orders"),
        ("com.example.Order", "com.example.Order"),
        (":.test:orders-value", "orders"),
        ("-value", "-value"),
        ("a-value-value", "a-value"),
    ],
)
def test_a_subject_belongs_to_a_topic(registry: TriedRegistry, subject: str, topic: str) -> None:
    rights = AllowedRights(frozenset())
    registry.ask("GET", f"/subjects/{subject}/versions", rights=rights)
    assert rights.asked == [("DESCRIBE", topic)]
