"""The levels of a broker's loggers are described and changed while it runs (KIP-412)."""

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from quorate.broker.kafka.admin.broker_loggers import RESOURCE_TYPE
from quorate_proto.v1 import errors_pb2
from tests.support.kafka_fakes import FakeBrokerInside
from tests.unit.kafka.conftest import Ask
from tests.unit.kafka.test_configs import grant, resource

DESCRIBE, ALTER, INCREMENTAL = 32, 33, 44
SET, DELETE, APPEND = range(3)
NAME = "quorate.tests.loud"
ME = "1"


@pytest.fixture(autouse=True)
def logger() -> Iterator[logging.Logger]:
    made = logging.getLogger(f"{NAME}.inner")
    root_level = logging.root.level
    yield made
    logging.root.setLevel(root_level)
    for name in (NAME, made.name):
        logging.getLogger(name).setLevel(logging.NOTSET)


async def levels(ask: Ask, *names: str, broker: str = ME) -> dict[str, str]:
    asked = {
        "resource_type": RESOURCE_TYPE,
        "resource_name": broker,
        "configuration_keys": names or None,
    }
    values = {
        "resources": [asked],
        "include_synonyms": True,
        "include_documentation": True,
    }
    (found,) = (await ask(DESCRIBE, 4, values)).results
    assert found.error_code == 0, found.error_message
    assert {one.config_source for one in found.configs} <= {6}
    return {one.name: one.value for one in found.configs}


async def altered(
    ask: Ask, *configs: tuple[str, int, str | None], broker: str = ME, validate_only: bool = False
) -> Any:  # noqa: ANN401 - kio's type of the result
    values = {
        "resources": [resource(RESOURCE_TYPE, broker, *configs)],
        "validate_only": validate_only,
    }
    (found,) = (await ask(INCREMENTAL, 1, values)).responses
    return found


async def test_levels_are_set_and_removed(ask: Ask, logger: logging.Logger) -> None:
    found = await altered(ask, (NAME, SET, "DEBUG"), ("root", SET, "ERROR"))
    assert found.error_code == 0
    assert logger.isEnabledFor(logging.DEBUG)
    assert await levels(ask, NAME, logger.name, "root") == {
        NAME: "DEBUG",
        logger.name: "DEBUG",
        "root": "ERROR",
    }
    assert (await altered(ask, (NAME, DELETE, None))).error_code == 0
    assert await levels(ask, logger.name) == {logger.name: "ERROR"}
    assert {"root", NAME} <= set(await levels(ask))


@pytest.mark.parametrize("level", ["TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL"])
async def test_every_level_of_kafka_can_be_set(ask: Ask, level: str) -> None:
    assert (await altered(ask, (NAME, SET, level))).error_code == 0
    assert await levels(ask, NAME) == {NAME: level}


@pytest.mark.parametrize(
    ("change", "code", "why"),
    [
        ((NAME, SET, "LOUD"), errors_pb2.INVALID_CONFIG, "'LOUD' is no level"),
        ((NAME, SET, None), errors_pb2.INVALID_CONFIG, "is no level"),
        (("kafka.none", SET, "INFO"), errors_pb2.INVALID_CONFIG, "no logger 'kafka.none'"),
        (("root", DELETE, None), errors_pb2.INVALID_REQUEST, "cannot be removed"),
        ((NAME, APPEND, "INFO"), errors_pb2.INVALID_REQUEST, "is no list"),
    ],
)
async def test_if_one_level_is_refused_none_is_changed(
    ask: Ask, change: tuple[str, int, str | None], code: int, why: str
) -> None:
    before = await levels(ask, NAME)
    found = await altered(ask, (f"{NAME}.inner", SET, "TRACE"), change)
    assert found.error_code == code
    assert why in found.error_message
    assert await levels(ask, NAME) == before
    assert await levels(ask, f"{NAME}.inner") != {f"{NAME}.inner": "TRACE"}


async def test_a_broker_has_its_own_loggers_alone(ask: Ask) -> None:
    found = await altered(ask, (NAME, SET, "DEBUG"), broker="2")
    assert found.error_code == errors_pb2.INVALID_REQUEST
    assert "this is broker 1" in found.error_message
    assert await levels(ask, NAME) != {NAME: "DEBUG"}


async def test_what_is_only_validated_changes_nothing(ask: Ask) -> None:
    assert (await altered(ask, (NAME, SET, "TRACE"), validate_only=True)).error_code == 0
    assert await levels(ask, NAME) != {NAME: "TRACE"}


async def test_loggers_beside_topics_reach_no_controller(
    inside: FakeBrokerInside, ask: Ask
) -> None:
    grant(inside)
    topic = resource(2, "t", ("retention.ms", SET, "5"))
    logger = resource(RESOURCE_TYPE, ME, (NAME, SET, "DEBUG"))
    values = {"resources": [topic, logger], "validate_only": False}
    found = (await ask(INCREMENTAL, 1, values)).responses
    assert [(one.resource_type, one.error_code) for one in found] == [(2, 0), (RESOURCE_TYPE, 0)]
    (request,) = inside.forwarder.asked["IncrementalAlterConfigs"]
    assert [one.entity_name for one in request.changes] == ["t"]
