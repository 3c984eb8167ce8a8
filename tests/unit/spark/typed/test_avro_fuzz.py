"""The decoder against fastavro: any schema, any value, and a reader that has grown from the writer.

Unions are left to the tests of single types: fastavro does not tell branches apart in its results.
"""

import io
from typing import Any

import fastavro
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.avro_records import decoded, encode, field, record

PRIMITIVES: dict[str, st.SearchStrategy[Any]] = {
    "int": st.integers(-(1 << 31), (1 << 31) - 1),
    "long": st.integers(-(1 << 63), (1 << 63) - 1),
    "double": st.floats(allow_nan=False),
    "boolean": st.booleans(),
    "string": st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    "bytes": st.binary(max_size=20),
}
WIDER = {"int": ("long", "double"), "string": ("bytes",), "long": ("double",)}


@st.composite
def types(draw: st.DrawFn, depth: int = 3) -> Any:  # noqa: ANN401 - JSON
    kind = draw(st.sampled_from([*PRIMITIVES, "nullable", "array", "map", "record"]))
    if kind in PRIMITIVES or depth == 0:
        return kind if kind in PRIMITIVES else "int"
    inner = draw(types(depth=depth - 1))
    if kind == "nullable":
        return inner if isinstance(inner, list) else draw(st.permutations(["null", inner]))
    if kind in ("array", "map"):
        return {"type": kind, "items" if kind == "array" else "values": inner}
    return draw(records(depth=depth - 1))


@st.composite
def records(draw: st.DrawFn, depth: int = 3) -> Any:  # noqa: ANN401 - JSON
    fields = draw(st.lists(types(depth=depth), min_size=1, max_size=5))
    return record(*(field(f"f{n}", type_) for n, type_ in enumerate(fields)))


def with_names(schema: Any, path: str = "R") -> Any:  # noqa: ANN401 - JSON
    """The schema with a name of its own for each record."""
    if isinstance(schema, list):
        return [with_names(part, path) for part in schema]
    if isinstance(schema, str):
        return schema
    if schema["type"] in ("array", "map"):
        key = "items" if schema["type"] == "array" else "values"
        return {**schema, key: with_names(schema[key], f"{path}i")}
    fields = [
        {**part, "type": with_names(part["type"], f"{path}_{n}")}
        for n, part in enumerate(schema["fields"])
    ]
    return {**schema, "name": path, "fields": fields}


def values(schema: Any) -> st.SearchStrategy[Any]:  # noqa: ANN401 - JSON
    if isinstance(schema, list):
        (inner,) = (part for part in schema if part != "null")
        return st.none() | values(inner)
    if isinstance(schema, str):
        return PRIMITIVES[schema]
    if schema["type"] == "array":
        return st.lists(values(schema["items"]), max_size=4)
    if schema["type"] == "map":
        return st.dictionaries(PRIMITIVES["string"], values(schema["values"]), max_size=4)
    return st.fixed_dictionaries({f["name"]: values(f["type"]) for f in schema["fields"]})


@st.composite
def grown(draw: st.DrawFn, schema: Any) -> Any:  # noqa: ANN401 - JSON
    """A reader's schema that has grown from a writer's."""
    if isinstance(schema, list):
        return [part if part == "null" else draw(grown(part)) for part in schema]
    if isinstance(schema, str):
        return draw(st.sampled_from([schema, *WIDER.get(schema, ())]))
    if schema["type"] in ("array", "map"):
        key = "items" if schema["type"] == "array" else "values"
        return {**schema, key: draw(grown(schema[key]))}
    kept = [part for part in schema["fields"] if draw(st.integers(0, 3))]
    fields = [{**part, "type": draw(grown(part["type"]))} for part in kept]
    if draw(st.booleans()):
        fields.append(field("new", "string", default="fresh"))
        fields.append(field("more", {"type": "array", "items": "int"}, default=[1, 2]))
    return {**schema, "fields": draw(st.permutations(fields))}


def plain(schema: Any, value: Any) -> Any:  # noqa: ANN401
    """What Arrow gives for a value of fastavro: maps are lists of pairs."""
    if isinstance(schema, list):
        (inner,) = (part for part in schema if part != "null")
        return None if value is None else plain(inner, value)
    if isinstance(schema, str):
        return value
    if schema["type"] == "array":
        return [plain(schema["items"], item) for item in value]
    if schema["type"] == "map":
        return [(key, plain(schema["values"], item)) for key, item in value.items()]
    return {f["name"]: plain(f["type"], value[f["name"]]) for f in schema["fields"]}


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_what_fastavro_reads_is_read(data: st.DataObject) -> None:
    writer = with_names(data.draw(records()))
    written = data.draw(st.lists(values(writer), min_size=1, max_size=5))
    bodies = [encode(writer, value) for value in written]
    assert decoded(writer, *bodies) == [plain(writer, value) for value in written]
    reader = data.draw(grown(writer))
    parsed = fastavro.parse_schema(writer), fastavro.parse_schema(reader)
    expected = [fastavro.schemaless_reader(io.BytesIO(body), *parsed) for body in bodies]
    assert decoded(writer, *bodies, reader=reader) == [plain(reader, one) for one in expected]
