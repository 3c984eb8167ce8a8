"""The versions of changes that are forwarded, as the table of changes says (F2)."""

from pathlib import Path
from typing import Any

import pytest

from quorate.broker.changes.table import CHANGES, INCREMENTAL_ALTER_CONFIGS, Change
from quorate.broker.kafka.api_table import api_table
from quorate.broker.kafka.connection.request_dispatcher import RequestDispatcher, frame_response
from quorate.broker.kafka.connection.requests import ClientSession
from quorate_proto.v1 import admin_pb2, errors_pb2
from tests.support.kafka_fakes import FakeBrokerInside, fake_broker
from tests.support.kafka_wire import read_answer, request_frame


@pytest.mark.parametrize(("version", "proxied"), [(0, True), (1, True), (2, False)])
async def test_f1_the_version_decides_whether_a_change_is_passed_on(
    tmp_path: Path, version: int, *, proxied: bool
) -> None:
    inside = fake_broker(tmp_path)
    request = admin_pb2.IncrementalAlterConfigsRequest()
    forwarder = inside.services.forwarder
    await forwarder.forward(INCREMENTAL_ALTER_CONFIGS, request, api_version=version)
    assert inside.forwarder.proxied == [proxied]
    assert inside.forwarder.asked["IncrementalAlterConfigs"] == [request]


KAFKAS = [(change.key, change) for change in CHANGES if change.key is not None]


@pytest.mark.parametrize(("key", "change"), KAFKAS, ids=[change.rpc for _, change in KAFKAS])
def test_f1_what_is_advertised_is_what_the_table_of_changes_has(
    key: int, change: Change[Any, Any]
) -> None:
    api = api_table()[key]
    served = range(api.min_version, api.max_version + 1)
    assert [*served] == [*change.proxied, *change.controller_only]


@pytest.mark.parametrize("is_controller", [True, False])
async def test_f1_f2_a_version_that_upstream_lacks_is_read_as_the_one_before(
    inside: FakeBrokerInside, *, is_controller: bool
) -> None:
    """IncrementalAlterConfigs 2: only the controller accepts it; others return NOT_CONTROLLER."""
    inside.forwarder.is_controller = is_controller
    granted = admin_pb2.ConfigResult(entity_type="topic", entity_name="t")

    async def grant(_request: Any) -> Any:  # noqa: ANN401 - any request
        return admin_pb2.IncrementalAlterConfigsResponse(results=[granted])

    inside.forwarder.answers["IncrementalAlterConfigs"] = grant
    config = {"name": "min.insync.replicas", "config_operation": 0, "value": "2"}
    resource = {"resource_type": 2, "resource_name": "t", "configs": [config]}
    frame = bytearray(request_frame(44, 1, {"resources": [resource], "validate_only": False}))
    frame[2:4] = (2).to_bytes(2, "big")
    dispatcher = RequestDispatcher(inside.services, api_table())
    request = dispatcher.decode(memoryview(frame), ClientSession("host"))
    body = b"".join(frame_response(request, await request.run()))
    _, answer = read_answer(44, 1, body[4:])
    expected = errors_pb2.NONE if is_controller else errors_pb2.NOT_CONTROLLER
    assert [one.error_code for one in answer.responses] == [expected]
    assert inside.forwarder.proxied == [False]
    (asked,) = inside.forwarder.asked["IncrementalAlterConfigs"]
    assert dict(asked.changes[0].values) == {"min.insync.replicas": "2"}
