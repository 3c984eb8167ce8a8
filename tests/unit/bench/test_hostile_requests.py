"""The requests of ``bench/hostile.py`` are what its bench says: all that the schemas allow."""

import struct
from collections.abc import Iterator

import pytest

from bench.hostile_requests import good_clients
from bench.hostile_requests.cases import SIZES, Case, cases_of, in_order
from bench.hostile_requests.good_clients import EVERY_S
from bench.hostile_requests.layouts import Layout, layout_of
from quorate.broker.kafka.api_table import api_table
from quorate.broker.kafka.connection.requests import Api
from quorate.broker.kafka.wire import primitives
from quorate.broker.kafka.wire.primitives import Cursor, MalformedRequest

APIS = api_table()
EVERY_VERSION = [
    (api, version)
    for _, api in sorted(APIS.items())
    for version in range(api.min_version, api.max_version + 1)
]
BROKEN_ON_PURPOSE = ("claim", "body:zeros", "body:ones")
SIZE = "1k"


def cases(api: Api, version: int, size: str = SIZE) -> list[Case]:
    return list(cases_of(api, versions=[version], sizes=[size], roles=["nobody"]))


def decode(api: Api, frame: bytes) -> int:
    """How many bytes the broker's own decoder leaves."""
    cursor = Cursor(memoryview(frame)[4:])
    key, version, _ = cursor.unpack(struct.Struct(">hhi"))
    assert key == api.key
    assert api.min_version <= version <= api.max_version
    cursor.text(flexible=False)
    if version >= api.first_flexible_version:
        cursor.skip_tagged_fields()
    api.decode_body(version, cursor)
    return len(frame) - 4 - cursor.offset


@pytest.mark.parametrize(
    ("api", "version"),
    EVERY_VERSION,
    ids=[f"{api.name}-{version}" for api, version in EVERY_VERSION],
)
def test_every_request_is_one_that_the_broker_could_read(
    api: Api, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is refused for its size alone."""
    monkeypatch.setattr(primitives, "MAX_TAGGED_FIELDS", primitives.MAX_ELEMENTS)
    for case in cases(api, version):
        frame = case.frame()
        assert struct.unpack_from(">i", frame) == (len(frame) - 4,)
        if not case.shape.name.endswith(BROKEN_ON_PURPOSE):
            assert decode(api, frame) == 0, case.id


def paths_of(layout: Layout, at: str = "") -> Iterator[str]:
    for field in layout.fields:
        if field.is_array or field.kafka_type in ("bytes", "records"):
            yield at + field.name
        if field.nested is not None and field.is_array:
            yield from paths_of(field.nested, f"{at}{field.name}.")


def test_every_array_and_blob_of_every_version_grows() -> None:
    for api, version in EVERY_VERSION:
        grown = {case.shape.name.split(":")[0] for case in cases(api, version)}
        assert set(paths_of(layout_of(api.key, version))) <= grown, (api.name, version)


def test_every_known_tagged_field_is_sent() -> None:
    names = {case.shape.name for case in cases(APIS[1], 12)}
    assert "tag-cluster_id:large" in names


@pytest.mark.parametrize("size", ["10k", "1m"])
def test_a_request_fills_its_frame(size: str) -> None:
    api = APIS[3]
    by_name = {case.shape.name: case for case in cases(api, api.max_version, size)}
    for kind in ("real", "unknown", "least", "max", "min", "tagged"):
        length = len(by_name[f"topics:{kind}"].frame())
        assert 0.95 * SIZES[size] < length <= SIZES[size], kind


def test_distinct_names_are_distinct() -> None:
    api = APIS[3]
    (case,) = [one for one in cases(api, 1) if one.shape.name == "topics:distinct"]
    cursor = Cursor(memoryview(case.frame())[14 + len("hostile") :])
    names = [topic["name"] for topic in api.decode_body(1, cursor)["topics"]]
    assert len(names) == len(set(names)) > 50


def test_a_claim_announces_an_element_for_every_byte_that_follows() -> None:
    api = APIS[42]
    (case,) = [one for one in cases(api, 0) if one.shape.name == "groups_names:claim"]
    frame = case.frame()
    with pytest.raises(MalformedRequest):
        decode(api, frame)
    (count,) = struct.unpack_from(">i", frame, 14 + len("hostile"))
    assert count == len(frame) - 18 - len("hostile")


def test_ids_are_unique_and_the_order_is_that_of_the_seed() -> None:
    found = [case for api, version in EVERY_VERSION for case in cases(api, version)]
    ids = [case.id for case in found]
    assert len(set(ids)) == len(ids) > 5_000
    one, again, other = (in_order(found, seed) for seed in (1, 1, 2))
    assert [case.id for case in one] == [case.id for case in again]
    assert [case.id for case in one] != [case.id for case in other]


@pytest.mark.parametrize(
    ("late_s", "records"), [(0.0, 1), (0.4, 1), (1.0, 1), (2.9, 2), (50.2, 50), (1e6, 100)]
)
def test_the_good_producer_sends_what_became_due_in_one_batch(late_s: float, records: int) -> None:
    due = good_clients._due_after(100.0, 100.0 + late_s * EVERY_S)
    assert due == pytest.approx([100.0 + n * EVERY_S for n in range(1, records + 1)])
