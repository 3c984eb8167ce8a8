"""The client of a registry: what it asks for, what it tries again, and what it says."""

import base64
import re
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from quorate.spark.errors import RegistryUnavailable, UndecodableValue, ValueSchemaError
from quorate.spark.options.typed_options import ColumnOptions
from quorate.spark.retries import RetryPolicy
from quorate.spark.typed import avro_values
from quorate.spark.typed.avro_format import AvroFormat
from quorate.spark.typed.avro_schema import parse_avro
from quorate.spark.typed.find_format import find_format
from quorate.spark.typed.registry_settings import RegisteredSchema, RegistrySettings
from quorate.spark.typed.schema_registry import NoSuchSchema, SchemaRegistry
from tests.support.avro_records import encode, field, record
from tests.support.stub_registry import StubRegistry, framed
from tests.support.value_decoding import decode

OLD = record(field("id", "int"), field("gone", "string"))
NEW = record(field("id", "long"), field("note", ["null", "string"], default=None))


@pytest.fixture
def registry() -> Iterator[StubRegistry]:
    with StubRegistry() as running:
        yield running


def _no_pause(seconds: float) -> None:
    """Go on at once."""


def settings_of(*urls: str, retries: int = 0, **more: Any) -> RegistrySettings:  # noqa: ANN401
    return RegistrySettings(urls, retry_policy=RetryPolicy(retries, 1, _no_pause), **more)


def client(registry: StubRegistry, **more: Any) -> SchemaRegistry:  # noqa: ANN401
    return SchemaRegistry(settings_of(registry.url, **more))


def test_schemas_are_asked_for_once(registry: StubRegistry) -> None:
    schema_id = registry.add("orders/é-value", '"int"')
    asking = client(registry)
    assert asking.latest("orders/é-value") == RegisteredSchema(schema_id, "AVRO", '"int"')
    for _ in range(3):
        assert asking.schema(schema_id).text == '"int"'
    assert [path for _, path, _ in registry.requests] == [
        "/subjects/orders%2F%C3%A9-value/versions/latest",
        f"/schemas/ids/{schema_id}",
    ]


def test_references_come_before_what_uses_them(registry: StubRegistry) -> None:
    def of(subject: str) -> dict[str, Any]:
        return {"name": subject.upper(), "subject": subject, "version": 1}

    registry.add("a", "text of a")
    registry.add("b", "text of b", references=[of("a")])
    whole = registry.add("c", "text of c", references=[of("b"), of("a")])
    found = client(registry).schema(whole)
    assert [(one.name, one.text) for one in found.references] == [
        ("A", "text of a"),
        ("B", "text of b"),
    ]


def test_schemas_that_refer_to_each_other_end(registry: StubRegistry) -> None:
    first = registry.add("a", "x", references=[{"name": "B", "subject": "b", "version": 1}])
    registry.add("b", "y", references=[{"name": "A", "subject": "a", "version": 1}])
    assert {one.name for one in client(registry).schema(first).references} == {"A", "B"}


def test_who_asks(registry: StubRegistry) -> None:
    schema_id = registry.add("a", '"int"')
    client(registry, user_info="me:secret").schema(schema_id)
    client(registry, bearer_token="token").schema(schema_id)
    basic = base64.b64encode(b"me:secret").decode()
    assert [who for _, _, who in registry.requests] == [f"Basic {basic}", "Bearer token"]
    assert "secret" not in repr(settings_of("http://a", user_info="me:secret"))


def test_what_is_tried_again(registry: StubRegistry) -> None:
    schema_id = registry.add("a", '"int"')
    answers = [(503, {"message": "not yet"}), (429, b"slowly")]
    registry.refuse = lambda path: answers.pop() if answers else None
    assert client(registry, retries=2).schema(schema_id).text == '"int"'


def test_another_address_is_asked_where_one_does_not_answer(registry: StubRegistry) -> None:
    schema_id = registry.add("a", '"int"')
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"http://127.0.0.1:{closed.getsockname()[1]}"
    settings = settings_of(address, registry.url)
    assert SchemaRegistry(settings).schema(schema_id).text == '"int"'


def test_one_that_is_away_is_named_after_the_retries() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"http://127.0.0.1:{closed.getsockname()[1]}"
    with pytest.raises(RegistryUnavailable) as refusal:
        SchemaRegistry(settings_of(address, retries=2)).latest("a")
    message = str(refusal.value)
    assert message.startswith(f"asking the schema registry at {address} for subject 'a' failed 3 t")
    assert "refused" in message


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (401, {"message": "who are you?"}, r"user\.info\): status 401: who are you"),
        (403, b"no", r"\(schema\.registry\.basic\.auth\.user\.info\): status 403: no"),
        (301, b"", "does not answer for subject 'a': status 301"),
        (200, b"<html>", "is no schema registry: b'<html>'"),
        (200, b"[" * 100_000, "is no schema registry"),
        (200, {"id": 1}, "answered without a schema"),
        (200, {"schema": "x", "id": "1"}, "answered with id '1'"),
        (200, {"schema": "x", "id": 1, "references": [{}]}, "gives a malformed reference"),
        (500, {"message": "x"}, "failed 1 times in a row: status 500: x"),
        (200, b"x" * ((16 << 20) + 1), "more than 16777216 bytes"),
    ],
)
def test_answers_that_are_refused(
    registry: StubRegistry,
    status: int,
    body: Any,  # noqa: ANN401 - JSON
    message: str,
) -> None:
    registry.refuse = lambda path: (status, body)
    with pytest.raises(RegistryUnavailable, match=message):
        client(registry).latest("a")


def test_what_is_not_there(registry: StubRegistry) -> None:
    with pytest.raises(NoSuchSchema, match="has no subject 'a'"):
        client(registry).latest("a")
    with pytest.raises(NoSuchSchema, match="has no schema 7"):
        client(registry).schema(7)


# --- Avro behind the ids of the registry ----------------------------------------------------------


def test_a_schema_that_changed_in_the_middle(registry: StubRegistry) -> None:
    """Records of several writers alternate; the reader's schema is that of the planning."""
    old, new = registry.add("v", OLD), registry.add("v", NEW)
    about = AvroFormat(parse_avro(registry.schemas[new]["schema"]), settings_of(registry.url))
    values: list[bytes | None] = []
    for n in range(50):
        values.append(framed(old, encode(OLD, {"id": n, "gone": "x" * n})))
        values.append(framed(new, encode(NEW, {"id": n, "note": str(n)})))
    found, bad, _ = decode(about, [*values, None])
    assert not bad
    assert found == [
        row for n in range(50) for row in ({"id": n, "note": None}, {"id": n, "note": str(n)})
    ] + [None]


def test_records_whose_schema_is_unknown_or_does_not_fit(registry: StubRegistry) -> None:
    good = registry.add("v", NEW)
    narrow = registry.add("v", record(field("id", "string")))
    recursive = registry.add("v", record(field("next", ["null", "R"])))
    other = registry.add("p", "message A {}", "PROTOBUF")
    about = AvroFormat(parse_avro(registry.schemas[good]["schema"]), settings_of(registry.url))
    body = encode(NEW, {"id": 1, "note": "x"})
    for value, reason in (
        (framed(99, body), "schema id 99: the schema registry at .* has no schema 99"),
        (framed(narrow, body), "schema id 2: field id was written as string, not as long"),
        (framed(recursive, body), "schema id 3: the Avro type R contains itself"),
        (framed(other, body), "schema id 4: schema 4 is of type PROTOBUF, not AVRO"),
        (framed(good, body[:-1]), "schema id 1: field note: it runs past the end"),
        (b"\0\0\0\0", "it has 4 bytes, and the prefix with the schema id alone has 5"),
        (b"\x01" + framed(good, body)[1:], "begins with byte 1 and not with 0"),
        (b"", "it has 0 bytes"),
    ):
        found, bad, fault = decode(about, [framed(good, body), value, None])
        assert (found, bad) == ([{"id": 1, "note": "x"}, None, None], [1])
        assert fault is not None
        assert re.search(reason, fault.reason), fault.reason


def test_a_registry_that_is_away_is_no_bad_value(registry: StubRegistry) -> None:
    about = AvroFormat(parse_avro('"int"'), settings_of(registry.url))
    registry.refuse = lambda path: (503, b"")
    with pytest.raises(RegistryUnavailable, match="for schema 1 failed 1 times"):
        decode(about, [framed(1, b"\x02")])


def test_the_registry_is_not_asked_for_ids_without_end(
    registry: StubRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(avro_values, "UNKNOWN_IDS_MAX", 3)
    about = AvroFormat(parse_avro('"int"'), settings_of(registry.url))
    with pytest.raises(UndecodableValue, match="is it the one that they were written with"):
        decode(about, [framed(n, b"\x02") for n in range(50, 60)])
    assert len(registry.requests) <= 5


def test_the_schemas_of_a_subject_are_of_the_wanted_type(registry: StubRegistry) -> None:
    registry.add("v", "message A {}", "PROTOBUF")
    with pytest.raises(ValueSchemaError, match="is avro, but subject 'v' has a schema of type PRO"):
        find_format(ColumnOptions("value", "avro", subject="v"), settings_of(registry.url))
