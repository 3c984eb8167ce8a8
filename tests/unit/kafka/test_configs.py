"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs: requests and responses."""

from typing import Any

import pytest

from quorate_proto.v1 import admin_pb2, errors_pb2
from tests.support.kafka_fakes import FakeBrokerInside
from tests.unit.kafka.conftest import Ask

DESCRIBE, ALTER, INCREMENTAL = 32, 33, 44
TOPIC, BROKER, UNKNOWN = 2, 4, 64
SET, DELETE, APPEND, SUBTRACT = range(4)


def resource(kind: int, name: str, *configs: tuple[Any, ...]) -> dict[str, Any]:
    fields = ("name", "config_operation", "value")
    return {
        "resource_type": kind,
        "resource_name": name,
        "configs": [dict(zip(fields, one, strict=True)) for one in configs],
    }


def replacement(kind: int, name: str, **values: str | None) -> dict[str, Any]:
    configs = [{"name": key, "value": value} for key, value in values.items()]
    return {"resource_type": kind, "resource_name": name, "configs": configs}


def grant(inside: FakeBrokerInside, code: int = errors_pb2.NONE) -> None:
    """Make the controller return the same outcome for each entity."""

    def results(entities: Any) -> list[admin_pb2.ConfigResult]:  # noqa: ANN401
        message = "why" if code else ""
        return [
            admin_pb2.ConfigResult(
                entity_type=one.entity_type,
                entity_name=one.entity_name,
                error_code=code,
                error_message=message,
            )
            for one in entities
        ]

    async def alter(request: Any) -> Any:  # noqa: ANN401
        return admin_pb2.IncrementalAlterConfigsResponse(results=results(request.changes))

    async def replace(request: Any) -> Any:  # noqa: ANN401
        return admin_pb2.AlterConfigsResponse(results=results(request.replacements))

    inside.forwarder.answers["IncrementalAlterConfigs"] = alter
    inside.forwarder.answers["AlterConfigs"] = replace


def outcomes(response: Any) -> list[tuple[int, str, int]]:  # noqa: ANN401
    return [(one.resource_type, one.resource_name, one.error_code) for one in response.responses]


@pytest.mark.parametrize("version", [0, 1])
async def test_f1_operations_reach_the_controller(
    inside: FakeBrokerInside, ask: Ask, version: int
) -> None:
    grant(inside)
    configs = [("a", SET, "1"), ("b", DELETE, None), ("c", APPEND, "x"), ("d", SUBTRACT, "y")]
    request = {"resources": [resource(TOPIC, "t", *configs)], "validate_only": True}
    assert outcomes(await ask(INCREMENTAL, version, request)) == [(TOPIC, "t", errors_pb2.NONE)]
    (asked,) = inside.forwarder.asked["IncrementalAlterConfigs"]
    assert asked.validate_only
    assert asked.context.api_name == "IncrementalAlterConfigs"
    assert list(asked.changes) == [
        admin_pb2.ConfigChange(
            entity_type="topic",
            entity_name="t",
            values={"a": "1"},
            removed=["b"],
            appended={"c": "x"},
            subtracted={"d": "y"},
        )
    ]


async def test_f1_a_bad_resource_never_stops_its_siblings(
    inside: FakeBrokerInside, ask: Ask
) -> None:
    grant(inside)
    request = {
        "resources": [
            resource(UNKNOWN, "1", ("a", SET, "1")),
            resource(TOPIC, "good", ("a", SET, "1")),
            resource(TOPIC, "keys", ("a", SET, "1"), ("a", DELETE, None)),
            resource(TOPIC, "twice", ("a", SET, "1")),
            resource(TOPIC, "twice", ("a", SET, "2")),
            resource(TOPIC, "null", ("a", SET, None)),
            resource(TOPIC, "operation", ("a", 9, "1")),
            resource(BROKER, "", ("a", SET, "1")),
        ],
        "validate_only": False,
    }
    bad = errors_pb2.INVALID_REQUEST
    assert outcomes(await ask(INCREMENTAL, 1, request)) == [
        (UNKNOWN, "1", bad),
        (TOPIC, "good", errors_pb2.NONE),
        (TOPIC, "keys", bad),
        (TOPIC, "twice", bad),
        (TOPIC, "null", bad),
        (TOPIC, "operation", bad),
        (BROKER, "", errors_pb2.NONE),
    ]
    (asked,) = inside.forwarder.asked["IncrementalAlterConfigs"]
    assert [one.entity_name for one in asked.changes] == ["good", ""]


@pytest.mark.parametrize("version", range(3))
async def test_f1_replacements_reach_the_controller(
    inside: FakeBrokerInside, ask: Ask, version: int
) -> None:
    grant(inside, errors_pb2.INVALID_CONFIG)
    resources = [replacement(BROKER, "1", a="1"), replacement(TOPIC, "t", b=None)]
    response = await ask(ALTER, version, {"resources": resources, "validate_only": False})
    assert outcomes(response) == [
        (BROKER, "1", errors_pb2.INVALID_CONFIG),
        (TOPIC, "t", errors_pb2.INVALID_REQUEST),
    ]
    assert [one.error_message for one in response.responses] == [
        "why",
        "b has no value: delete it, or give it one",
    ]
    (asked,) = inside.forwarder.asked["AlterConfigs"]
    assert list(asked.replacements) == [
        admin_pb2.ConfigReplacement(entity_type="broker", entity_name="1", values={"a": "1"})
    ]


async def test_f2_a_request_that_failed_as_a_whole_fails_for_each_resource(
    inside: FakeBrokerInside, ask: Ask
) -> None:
    async def not_controller(_: object) -> admin_pb2.IncrementalAlterConfigsResponse:
        return admin_pb2.IncrementalAlterConfigsResponse(error_code=errors_pb2.NOT_CONTROLLER)

    inside.forwarder.answers["IncrementalAlterConfigs"] = not_controller
    request = {"resources": [resource(TOPIC, "t", ("a", SET, "1"))], "validate_only": False}
    assert outcomes(await ask(INCREMENTAL, 1, request)) == [(TOPIC, "t", errors_pb2.NOT_CONTROLLER)]


@pytest.mark.parametrize("version", range(1, 5))
async def test_f3_descriptions_say_where_a_value_comes_from(
    inside: FakeBrokerInside, ask: Ask, version: int
) -> None:
    entry = admin_pb2.ConfigEntry(
        name="k",
        value="v",
        source=4,
        type=3,
        read_only=True,
        documentation="why",
        synonyms=[admin_pb2.ConfigSynonym(name="s", value="w", source=5)],
    )
    secret = admin_pb2.ConfigEntry(name="p", sensitive=True, source=4)
    inside.configs.results = [admin_pb2.DescribedConfig(entries=[entry, secret])]
    values = {
        "resources": [
            {"resource_type": UNKNOWN, "resource_name": "1", "configuration_keys": None},
            {"resource_type": TOPIC, "resource_name": "t", "configuration_keys": ("k",)},
        ],
        "include_synonyms": True,
        "include_documentation": True,
    }
    logger, topic = (await ask(DESCRIBE, version, values)).results
    assert logger.error_code == errors_pb2.INVALID_REQUEST
    assert (topic.resource_type, topic.resource_name, topic.error_code) == (TOPIC, "t", 0)
    told, hidden = topic.configs
    assert (told.name, told.value, told.read_only, told.config_source) == ("k", "v", True, 4)
    assert [(one.name, one.value, one.source) for one in told.synonyms] == [("s", "w", 5)]
    assert (hidden.value, hidden.is_sensitive) == (None, True)
    if version >= 3:
        assert (told.config_type, told.documentation) == (3, "why")
    *_, request = inside.configs.asked
    assert [(one.entity_type, list(one.keys)) for one in request.entities] == [("topic", ["k"])]
    assert request.include_synonyms
    assert request.include_documentation is (version >= 3)
