"""ListConfigResources: the topics, brokers and others that have a configuration of their own."""

import immutables
import pytest

from quorate.metadata_log.image import EntityKey, Image
from quorate_proto.v1 import errors_pb2
from tests.support.followers import ShownImage
from tests.support.kafka_fakes import FakeBrokerInside
from tests.unit.kafka.conftest import Ask

KEY = 74
TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32


@pytest.fixture
def topics(inside: FakeBrokerInside) -> None:
    for name in ("a", "b"):
        inside.metadata.add_topic(name)
    assert isinstance(inside.services.images, ShownImage)
    timeout = immutables.Map({"consumer.session.timeout.ms": "50000"})
    configs: immutables.Map[EntityKey, immutables.Map[str, str]] = immutables.Map(
        [(EntityKey(("group", "g")), timeout)]
    )
    inside.services.images.show(Image(configs=configs))


@pytest.mark.usefixtures("topics")
@pytest.mark.parametrize(
    ("types", "found"),
    [
        ([], {(BROKER, "1"), (BROKER_LOGGER, "1"), (TOPIC, "a"), (TOPIC, "b"), (GROUP, "g")}),
        ([TOPIC], {(TOPIC, "a"), (TOPIC, "b")}),
        ([BROKER, GROUP], {(BROKER, "1"), (GROUP, "g")}),
        ([BROKER_LOGGER, CLIENT_METRICS], {(BROKER_LOGGER, "1")}),
    ],
)
async def test_kip_1142_resources_of_the_types_asked_for(
    ask: Ask, types: list[int], found: set[tuple[int, str]]
) -> None:
    response = await ask(KEY, 1, {"resource_types": types})
    assert response.error_code == errors_pb2.NONE
    listed = [(one.resource_type, one.resource_name) for one in response.config_resources]
    assert sorted(listed) == sorted(found)


@pytest.mark.usefixtures("topics")
async def test_kip_714_version_0_knows_client_metrics_alone(ask: Ask) -> None:
    response = await ask(KEY, 0, {})
    assert (response.error_code, response.config_resources) == (errors_pb2.NONE, ())


async def test_kip_1142_a_type_that_kafka_does_not_list_is_refused(ask: Ask) -> None:
    response = await ask(KEY, 1, {"resource_types": [TOPIC, 3]})
    assert response.error_code == errors_pb2.UNSUPPORTED_VERSION
    assert response.config_resources == ()
