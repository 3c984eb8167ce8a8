"""Which versions of a change are passed on, as the table of changes has it (F2)."""

from pathlib import Path

import pytest

from broker.control.changes import INCREMENTAL_ALTER_CONFIGS
from broker.kafka.admin_context import ask_controller
from broker.kafka.requests import RequestContext
from quorate_proto.v1 import admin_pb2
from tests.support.kafka_fakes import fake_broker


@pytest.mark.parametrize(("version", "proxied"), [(0, True), (1, True), (2, False)])
async def test_f1_the_version_decides_whether_a_change_is_passed_on(
    tmp_path: Path, version: int, *, proxied: bool
) -> None:
    inside = fake_broker(tmp_path)
    context = RequestContext(version, "client", "host")
    request = admin_pb2.IncrementalAlterConfigsRequest()
    await ask_controller(inside.services, context, INCREMENTAL_ALTER_CONFIGS, request)
    assert inside.forwarder.proxied == [proxied]
    assert inside.forwarder.asked["IncrementalAlterConfigs"] == [request]
