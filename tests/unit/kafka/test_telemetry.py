"""GetTelemetrySubscriptions and PushTelemetry on the wire, and subscriptions as resources."""

import immutables
import pytest

from quorate.metadata_log.image import EntityKey, Image
from quorate_proto.v1 import errors_pb2
from tests.support.kafka_fakes import FakeBrokerInside
from tests.unit.kafka.conftest import Ask

GET, PUSH, LIST, CLIENT_METRICS = 71, 72, 74, 16
IMAGE = Image(
    configs=immutables.Map({EntityKey(("client-metrics", "all")): immutables.Map({"metrics": "*"})})
)


@pytest.fixture
def subscribed(inside: FakeBrokerInside) -> None:
    inside.services.telemetry.set_subscriptions(IMAGE)


@pytest.mark.usefixtures("subscribed")
async def test_kip_714_a_client_learns_what_to_push(ask: Ask) -> None:
    told = await ask(GET, 0, {"client_instance_id": None})
    assert (told.error_code, told.requested_metrics) == (errors_pb2.NONE, ("*",))
    assert told.accepted_compression_types == (4, 3, 1, 2)
    assert (told.telemetry_max_bytes, told.delta_temporality) == (1 << 20, True)
    assert told.push_interval.total_seconds() == 300
    again = await ask(GET, 0, {"client_instance_id": told.client_instance_id})
    assert again.subscription_id == told.subscription_id


async def test_kip_714_the_error_of_a_push_reaches_the_client(ask: Ask) -> None:
    told = await ask(GET, 0, {"client_instance_id": None})
    pushed = {
        "client_instance_id": told.client_instance_id,
        "subscription_id": told.subscription_id ^ 1,
        "terminating": False,
        "compression_type": 0,
        "metrics": b"",
    }
    assert (await ask(PUSH, 0, pushed)).error_code == errors_pb2.UNKNOWN_SUBSCRIPTION_ID
    pushed["subscription_id"] = told.subscription_id
    assert (await ask(PUSH, 0, pushed)).error_code == errors_pb2.NONE


@pytest.mark.usefixtures("subscribed")
@pytest.mark.parametrize(("version", "request_"), [(0, {}), (1, {"resource_types": [16]})])
async def test_kip_714_subscriptions_are_listed(
    ask: Ask, version: int, request_: dict[str, list[int]]
) -> None:
    listed = await ask(LIST, version, request_)
    assert [one.resource_name for one in listed.config_resources] == ["all"]
