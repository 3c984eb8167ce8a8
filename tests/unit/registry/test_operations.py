"""What the registry answers and writes: ids, versions, deletions, references and contexts."""

import json
from typing import Any

import pytest

from quorate.broker.registry.state.registry_records import (
    ConfigKey,
    ContextKey,
    DeleteSubjectKey,
    IdMarkKey,
    ModeKey,
    SchemaKey,
    encode_key,
)
from tests.support.registry import Refused, TriedRegistry


def record(*fields: dict[str, Any], name: str = "R") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


ONE = record({"name": "a", "type": "int"})
TWO = record({"name": "a", "type": "int"}, {"name": "b", "type": "int", "default": 0})
OTHER = record({"name": "x", "type": "string"})


@pytest.fixture
def registry() -> TriedRegistry:
    return TriedRegistry()


def versions(registry: TriedRegistry, subject: str, query: str = "") -> Any:  # noqa: ANN401
    return registry.ask("GET", f"/subjects/{subject}/versions{query}")


def test_a_schema_has_one_id_in_all_subjects(registry: TriedRegistry) -> None:
    assert registry.register("a", ONE) == 1
    assert registry.register("a", ONE) == 1
    assert registry.register("a", json.dumps(ONE, indent=4)) == 1
    assert registry.register("b", ONE) == 1
    assert registry.register("a", TWO) == 2
    assert versions(registry, "a") == [1, 2]
    assert registry.ask("GET", "/schemas/ids/1/versions") == [
        {"subject": "a", "version": 1},
        {"subject": "b", "version": 1},
    ]
    assert len(registry.log) == 3


def test_an_incompatible_schema_is_refused_and_nothing_is_written(registry: TriedRegistry) -> None:
    registry.register("a", ONE)
    assert registry.register("a", OTHER) == Refused(409, 409)
    assert registry.register("a", "{") == Refused(422, 42201)
    assert registry.register("a", "x", schemaType="XML") == Refused(422, 42201)
    assert len(registry.log) == 1


@pytest.mark.parametrize(
    ("level", "schema", "accepted"),
    [
        # The versions are ONE, then TWO; the last one lacks what the first one has.
        ("NONE", OTHER, True),
        ("BACKWARD", record({"name": "b", "type": "int"}), True),
        ("BACKWARD_TRANSITIVE", record({"name": "b", "type": "int"}), False),
        ("FORWARD", record({"name": "a", "type": "int"}, {"name": "c", "type": "int"}), True),
        ("FORWARD", record({"name": "b", "type": "int"}), False),
        ("FORWARD_TRANSITIVE", record({"name": "b", "type": "int"}), False),
        ("FULL", record({"name": "b", "type": "int"}), False),
        ("FULL_TRANSITIVE", {**TWO, "doc": "x"}, True),
    ],
)
def test_levels(registry: TriedRegistry, level: str, schema: object, accepted: bool) -> None:
    registry.register("a", ONE)
    registry.register("a", TWO)
    registry.ask("PUT", "/config/a", {"compatibility": level.lower()})
    assert registry.ask("GET", "/config/a") == {"compatibilityLevel": level}
    text = json.dumps(schema)
    checked = registry.ask("POST", "/compatibility/subjects/a/versions", {"schema": text})
    assert checked == {"is_compatible": accepted}
    assert (registry.register("a", schema) == 3) is accepted


def test_a_check_says_why(registry: TriedRegistry) -> None:
    registry.register("a", ONE)
    url = "/compatibility/subjects/a/versions/latest?verbose=true"
    found = registry.ask("POST", url, {"schema": json.dumps(OTHER)})
    assert not found["is_compatible"]
    assert "field x" in found["messages"][0]
    assert not registry.ask("POST", url, {"schema": "{"})["is_compatible"]
    other = "/compatibility/subjects/a/versions/7"
    assert registry.ask("POST", other, {"schema": "1"}) == Refused(404, 40402)


def test_look_ups(registry: TriedRegistry) -> None:
    registry.register("a", ONE)
    found = registry.ask("POST", "/subjects/a", {"schema": json.dumps(ONE, indent=1)})
    assert (found["subject"], found["version"], found["id"]) == ("a", 1, 1)
    assert registry.ask("POST", "/subjects/a", {"schema": json.dumps(TWO)}) == Refused(404, 40403)
    assert registry.ask("POST", "/subjects/b", {"schema": json.dumps(ONE)}) == Refused(404, 40401)
    assert registry.ask("GET", "/subjects/a/versions/2") == Refused(404, 40402)
    assert registry.ask("GET", "/subjects/a/versions/x") == Refused(422, 42202)
    assert registry.ask("GET", "/subjects/a/versions/0") == Refused(422, 42202)
    assert registry.ask("GET", "/schemas/ids/9") == Refused(404, 40403)
    assert registry.ask("GET", f"/schemas/guids/{found['guid']}")["schema"] == found["schema"]
    assert registry.ask("GET", "/subjects/a/versions/latest/schema") == ONE or isinstance(
        registry.ask("GET", "/subjects/a/versions/latest/schema"), str
    )


def test_a_soft_deletion_hides_and_a_permanent_one_removes(registry: TriedRegistry) -> None:
    registry.register("a", ONE)
    registry.register("a", TWO)
    assert registry.ask("DELETE", "/subjects/a/versions/1?permanent=true") == Refused(404, 40407)
    assert registry.ask("DELETE", "/subjects/a/versions/1") == 1
    assert versions(registry, "a") == [2]
    assert versions(registry, "a", "?deleted=true") == [1, 2]
    assert registry.ask("DELETE", "/subjects/a/versions/1") == Refused(404, 40406)
    assert registry.ask("GET", "/schemas/ids/1")["schema"]  # There is data with the id.
    assert registry.ask("DELETE", "/subjects/a/versions/1?permanent=true") == 1
    assert registry.ask("GET", "/schemas/ids/1") == Refused(404, 40403)
    assert registry.ask("DELETE", "/subjects/a?permanent=true") == Refused(404, 40405)
    assert registry.ask("DELETE", "/subjects/a") == [2]
    assert registry.ask("DELETE", "/subjects/a") == Refused(404, 40404)
    assert registry.ask("GET", "/subjects") == []
    assert registry.ask("GET", "/subjects?deleted=true") == ["a"]
    assert registry.ask("DELETE", "/subjects/a?permanent=true") == [2]
    assert registry.ask("DELETE", "/subjects/a") == Refused(404, 40401)


def test_an_id_is_never_given_away_twice(registry: TriedRegistry) -> None:
    registry.register("a", ONE)
    registry.register("b", OTHER)
    for permanent in ("false", "true"):
        registry.ask("DELETE", f"/subjects/b?permanent={permanent}")
    after = registry.compacted()
    assert after.state.uses_of_id(".", 2) == []
    assert after.register("b", TWO) == 3


def test_a_schema_that_comes_back_has_its_id_and_the_next_version(registry: TriedRegistry) -> None:
    registry.register("a", ONE)
    registry.ask("DELETE", "/subjects/a")
    assert registry.register("a", ONE) == 1
    assert versions(registry, "a") == [2]
    assert versions(registry, "a", "?deleted=true") == [2]  # The new version takes its place.


def test_another_registry_that_reads_the_log_knows_the_same(registry: TriedRegistry) -> None:
    registry.register("a", ONE)
    registry.register("a", TWO)
    registry.register(":.test:a", OTHER)
    registry.ask("DELETE", "/subjects/a/versions/1")
    registry.ask("PUT", "/config", {"compatibility": "FULL"})
    registry.ask("PUT", "/mode/a", {"mode": "READONLY"})
    for other in (registry.replayed(), registry.compacted()):
        for url in ("/schemas?deleted=true&subjectPrefix=:*:", "/config", "/mode/a", "/contexts"):
            assert other.ask("GET", url) == registry.ask("GET", url)


def test_references_hold_what_they_refer_to(registry: TriedRegistry) -> None:
    inner = record({"name": "x", "type": "int"}, name="Inner")
    outer = record({"name": "i", "type": "Inner"}, name="Outer")
    reference = {"name": "Inner", "subject": "inner", "version": 1}
    assert registry.register("outer", outer, references=[reference]) == Refused(422, 42201)
    registry.register("inner", inner)
    assert registry.register("outer", outer, references=[reference]) == 2
    assert registry.register("outer", outer, references=[reference]) == 2
    assert registry.ask("GET", "/subjects/inner/versions/1/referencedby") == [2]
    assert registry.ask("GET", "/schemas/ids/2")["references"] == [reference]
    assert registry.ask("DELETE", "/subjects/inner/versions/1") == Refused(422, 42206)
    assert registry.ask("DELETE", "/subjects/inner") == Refused(422, 42206)
    registry.ask("DELETE", "/subjects/outer")
    assert registry.ask("DELETE", "/subjects/inner") == [1]
    assert registry.ask("DELETE", "/subjects/inner?permanent=true") == Refused(422, 42206)


def test_an_alias_stands_for_another_subject(registry: TriedRegistry) -> None:
    registry.register("orders", ONE)
    registry.ask("PUT", "/config/old-orders", {"alias": "orders"})
    assert registry.ask("GET", "/config/old-orders") == {
        "compatibilityLevel": "BACKWARD",
        "alias": "orders",
    }
    assert registry.register("old-orders", TWO) == 2
    assert registry.ask("GET", "/subjects") == ["orders"]
    assert versions(registry, "old-orders") == [1, 2]
    assert registry.ask("GET", "/subjects/old-orders/versions/latest")["subject"] == "orders"
    url = "/compatibility/subjects/old-orders/versions"
    assert registry.ask("POST", url, {"schema": json.dumps(OTHER)}) == {"is_compatible": False}
    registry.ask("PUT", "/config/older", {"alias": "old-orders"})
    assert versions(registry, "older") == Refused(404, 40401), "an alias is followed once"
    assert registry.ask("DELETE", "/subjects/old-orders") == [1, 2]
    registry.ask("DELETE", "/config/old-orders")
    assert versions(registry, "old-orders", "?deleted=true") == Refused(404, 40401)


def test_an_alias_is_in_the_context_of_its_subject(registry: TriedRegistry) -> None:
    registry.register(":.test:orders", ONE)
    registry.register("orders", OTHER)
    registry.ask("PUT", "/config/:.test:old", {"alias": "orders"})
    registry.ask("PUT", "/config/elsewhere", {"alias": ":.test:orders"})
    for alias in (":.test:old", "elsewhere"):
        found = registry.ask("GET", f"/subjects/{alias}/versions/1")
        assert found["subject"] == ":.test:orders"
        assert registry.ask("GET", f"/schemas/ids/1?subject={alias}")["schema"] == json.dumps(
            ONE, separators=(",", ":")
        )


def test_contexts_have_ids_of_their_own(registry: TriedRegistry) -> None:
    assert registry.register("a", ONE) == 1
    assert registry.register(":.test:a", OTHER) == 1
    assert registry.ask("GET", "/subjects") == ["a"]
    assert registry.ask("GET", "/subjects?subjectPrefix=:.test:") == [":.test:a"]
    assert registry.ask("GET", "/subjects?subjectPrefix=:*:") == [":.test:a", "a"]
    assert registry.ask("GET", "/contexts") == [".", ".test"]
    assert "string" in registry.ask("GET", "/schemas/ids/1?subject=:.test:a")["schema"]
    assert versions(registry, ":.:a") == [1]


def test_configurations_are_inherited(registry: TriedRegistry) -> None:
    assert registry.ask("GET", "/config") == {"compatibilityLevel": "BACKWARD"}
    assert registry.ask("PUT", "/config", {"compatibility": "X"}) == Refused(422, 42203)
    assert registry.ask("PUT", "/config", {"normalize": 5}) == Refused(422, 422)
    registry.ask("PUT", "/config", {"compatibility": "FULL"})
    assert registry.ask("GET", "/config/a") == Refused(404, 40408)
    inherited = registry.ask("GET", "/config/a?defaultToGlobal=true")
    assert inherited == {"compatibilityLevel": "FULL"}
    registry.ask("PUT", "/config/a", {"compatibility": "NONE", "normalize": True})
    found = {"compatibilityLevel": "NONE", "normalize": True}
    assert registry.ask("GET", "/config/a") == found
    assert registry.ask("DELETE", "/config/a") == found
    assert registry.ask("DELETE", "/config/a") == Refused(404, 40401)
    assert registry.ask("DELETE", "/config") == {"compatibilityLevel": "FULL"}
    assert registry.ask("GET", "/config") == {"compatibilityLevel": "BACKWARD"}


def test_modes(registry: TriedRegistry) -> None:
    registry.register("a", ONE)
    assert registry.ask("PUT", "/mode", {"mode": "X"}) == Refused(422, 42204)
    assert registry.ask("PUT", "/mode", {"mode": "readonly"}) == {"mode": "READONLY"}
    assert registry.register("a", TWO) == Refused(422, 42205)
    assert registry.ask("DELETE", "/subjects/a") == Refused(422, 42205)
    assert registry.ask("PUT", "/config", {"compatibility": "NONE"}) == Refused(422, 42205)
    registry.ask("DELETE", "/mode")
    assert registry.ask("PUT", "/mode", {"mode": "IMPORT"}) == Refused(422, 42205)
    assert registry.ask("PUT", "/mode/b", {"mode": "IMPORT"}) == {"mode": "IMPORT"}
    assert registry.register("b", OTHER) == Refused(422, 42205)
    assert registry.register("b", OTHER, id=70, version=3) == 70
    assert registry.register("b", TWO, id=70) == Refused(422, 42207)
    registry.ask("DELETE", "/mode/b")
    assert registry.register("b", OTHER, id=71) == Refused(422, 42205)
    assert registry.register("a", TWO) == 71
    assert versions(registry, "b") == [3]


def test_metadata_is_kept_and_found(registry: TriedRegistry) -> None:
    first, second = ({"properties": {"major": one}} for one in ("1", "2"))
    registry.ask("PUT", "/config", {"compatibilityGroup": "major"})
    assert registry.register("a", ONE, metadata=first) == 1
    assert registry.register("a", OTHER, metadata=second) == 2  # Another group.
    assert registry.register("a", ONE, metadata=second) == Refused(409, 409)
    found = registry.ask("GET", "/subjects/a/metadata?key=major&value=1")
    assert (found["version"], found["metadata"]) == (1, first)
    assert registry.ask("GET", "/subjects/a/metadata?key=major&value=3") == Refused(404, 40403)


def test_protobuf_is_given_as_text_or_serialized(registry: TriedRegistry) -> None:
    text = 'syntax = "proto3"; message M { int32 a = 1; }'
    assert registry.register("a", text, schemaType="PROTOBUF") == 1
    assert registry.ask("GET", "/schemas/ids/1")["schema"] == text
    serialized = registry.ask("GET", "/schemas/ids/1?format=serialized")["schema"]
    assert registry.register("a", serialized, schemaType="PROTOBUF") == 1
    assert registry.register("a", json.dumps(ONE)) == Refused(409, 409)  # Another language.


@pytest.mark.parametrize("subject", ["", "a%0Ab", "x" * 1_025])
def test_subjects_are_checked(registry: TriedRegistry, subject: str) -> None:
    if subject:
        assert registry.register(subject, ONE) == Refused(422, 42208)


@pytest.mark.parametrize(
    "body",
    [
        None,
        [],
        {},
        {"schema": 5},
        {"schema": "", "schemaType": "AVRO"},
        {"schema": "1", "references": [{"name": "a"}]},
        {"schema": "1", "references": 5},
        {"schema": "1", "metadata": 5},
        {"schema": "1", "id": "x"},
    ],
)
def test_bodies_are_checked(registry: TriedRegistry, body: object) -> None:
    answer = registry.ask("POST", "/subjects/a/versions", body)
    assert isinstance(answer, Refused)
    assert answer.status in (400, 422)


def test_keys_are_those_of_confluents_registry() -> None:
    """The topic is compacted by these bytes, so they may never change."""
    assert [
        encode_key(key).decode()
        for key in (
            SchemaKey("a-value", 1),
            ConfigKey(None),
            ConfigKey("a"),
            ModeKey(None),
            DeleteSubjectKey("a"),
            ContextKey(".x"),
            IdMarkKey(),
        )
    ] == [
        '{"keytype":"SCHEMA","subject":"a-value","version":1,"magic":1}',
        '{"keytype":"CONFIG","magic":0}',
        '{"keytype":"CONFIG","subject":"a","magic":0}',
        '{"keytype":"MODE","magic":0}',
        '{"keytype":"DELETE_SUBJECT","subject":"a","magic":0}',
        '{"keytype":"CONTEXT","tenant":"default","context":".x","magic":0}',
        '{"keytype":"NOOP","magic":0}',
    ]


def test_records_of_others_do_no_harm(registry: TriedRegistry) -> None:
    from quorate.broker.coordinator.shards.coordinator_records import LogRecord

    for key, value in (
        (b"", b""),
        (b"\xff", b"{}"),
        (b"[1]", None),
        (b'{"keytype":"ASSOC"}', b"{}"),
        (b'{"keytype":"SCHEMA","subject":"s","version":"x"}', b"{}"),
        (b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}', b'{"id":"x"}'),
        (b'{"keytype":"NOOP","magic":0}', b'{"maxIds":5}'),
        (b'{"keytype":"DELETE_SUBJECT","subject":"s"}', b'{"version":"x"}'),
        (b'{"keytype":"CONFIG","subject":null,"magic":0}', b'{"compatibilityLevel":"X"}'),
    ):
        registry.state.apply(LogRecord(key, value))
    assert registry.register("a", ONE) == 1
