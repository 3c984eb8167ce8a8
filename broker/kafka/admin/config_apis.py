"""The APIs DescribeConfigs (32), AlterConfigs (33) and IncrementalAlterConfigs (44).

Each broker describes configurations itself. Changes are carried out by the controller. Kafka
numbers the types of resources. A resource without a configuration here is refused, and the others
are not affected.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from quorate.broker.changes.table import ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS
from quorate.broker.common.errors import KafkaError
from quorate.broker.config.client_metrics_keys import CLIENT_METRICS
from quorate.broker.kafka.connection.requests import RequestContext
from quorate.broker.kafka.services import KafkaServices
from quorate.broker.kafka.wire.codec import Message
from quorate_proto.v1 import admin_pb2, errors_pb2

ENTITY_TYPES: Final[Mapping[int, str]] = {2: "topic", 4: "broker", 16: CLIENT_METRICS}
"""Kafka's resource types that have a configuration here."""

_SET, _DELETE, _APPEND, _SUBTRACT = range(4)

_TIMEOUT_MS: Final = 30_000
"""The deadline of these requests, which name none of their own."""

Outcome = tuple[int, str]
"""The error code and message of one resource."""

Resource = tuple[int, str]
"""Kafka's resource type, and the name."""

E = TypeVar("E")


# -- describe ------------------------------------------------------------------------------------


async def describe_configs(
    services: KafkaServices, context: RequestContext, request: Message
) -> Message:
    resources = request["resources"]
    served = [one for one in resources if one["resource_type"] in ENTITY_TYPES]
    described = await services.configs.describe(
        admin_pb2.DescribeConfigsRequest(
            context=context.for_controller("DescribeConfigs", _TIMEOUT_MS),
            entities=[
                admin_pb2.ConfigEntity(
                    entity_type=ENTITY_TYPES[one["resource_type"]],
                    entity_name=one["resource_name"],
                    keys=one["configuration_keys"] or (),
                )
                for one in served
            ],
            include_synonyms=request.get("include_synonyms", False),
            include_documentation=request.get("include_documentation", False),
        )
    )
    answers = iter(described.results)
    results = [
        _described(one, next(answers) if one["resource_type"] in ENTITY_TYPES else None)
        for one in resources
    ]
    values = {"throttle_time": 0, "results": results}
    return values


def _described(resource: Message, described: admin_pb2.DescribedConfig | None) -> Message:
    if described is None:
        code, message = _unknown_type(resource)
        described = admin_pb2.DescribedConfig(error_code=code, error_message=message)
    return {
        "error_code": described.error_code,
        "error_message": described.error_message or None,
        "resource_type": resource["resource_type"],
        "resource_name": resource["resource_name"],
        "configs": [_entry(entry) for entry in described.entries],
    }


def _entry(entry: admin_pb2.ConfigEntry) -> Message:
    return {
        "name": entry.name,
        "value": entry.value if entry.HasField("value") else None,
        "read_only": entry.read_only,
        "config_source": entry.source,
        "is_sensitive": entry.sensitive,
        "synonyms": [
            {
                "name": one.name,
                "value": None if entry.sensitive else one.value,
                "source": one.source,
            }
            for one in entry.synonyms
        ],
        "config_type": entry.type,
        "documentation": entry.documentation or None,
    }


# -- alter ---------------------------------------------------------------------------------------


async def incremental_alter_configs(
    services: KafkaServices, context: RequestContext, request: Message
) -> Message:
    changes, refused = _taken(request["resources"], _change)
    answer = await services.forwarder.forward(
        INCREMENTAL_ALTER_CONFIGS,
        admin_pb2.IncrementalAlterConfigsRequest(
            context=context.for_controller("IncrementalAlterConfigs", _TIMEOUT_MS),
            changes=changes.values(),
            validate_only=request["validate_only"],
        ),
        api_version=context.version,
    )
    outcomes = refused | _outcomes(changes, answer.results, answer.error_code)
    values = _altered(request["resources"], outcomes)
    return values


async def alter_configs(
    services: KafkaServices, context: RequestContext, request: Message
) -> Message:
    replacements, refused = _taken(request["resources"], _replacement)
    answer = await services.forwarder.forward(
        ALTER_CONFIGS,
        admin_pb2.AlterConfigsRequest(
            context=context.for_controller("AlterConfigs", _TIMEOUT_MS),
            replacements=replacements.values(),
            validate_only=request["validate_only"],
        ),
        api_version=context.version,
    )
    outcomes = refused | _outcomes(replacements, answer.results, answer.error_code)
    values = _altered(request["resources"], outcomes)
    return values


def _taken(
    resources: Sequence[Message], read: Callable[[Message], E]
) -> tuple[dict[Resource, E], dict[Resource, Outcome]]:
    """Split resources into those that the controller is asked to change and those that are refused
    at once.

    A resource that is named twice, for example, is refused.
    """
    times = Counter(_resource(one) for one in resources)
    taken: dict[Resource, E] = {}
    refused: dict[Resource, Outcome] = {}
    for one in resources:
        resource = _resource(one)
        if one["resource_type"] not in ENTITY_TYPES:
            refused[resource] = _unknown_type(one)
        elif times[resource] > 1:
            refused[resource] = (
                errors_pb2.INVALID_REQUEST,
                f"{one['resource_name']!r} is named more than once in the request",
            )
        else:
            try:
                taken[resource] = read(one)
            except KafkaError as error:
                refused[resource] = (error.code, error.message)
    return taken, refused


def _resource(one: Message) -> Resource:
    return one["resource_type"], one["resource_name"]


def _unknown_type(resource: Message) -> Outcome:
    known = ", ".join(f"{number} ({name})" for number, name in ENTITY_TYPES.items())
    return (
        errors_pb2.INVALID_REQUEST,
        f"resources of type {resource['resource_type']} have no configuration here: {known} have",
    )


def _change(resource: Message) -> admin_pb2.ConfigChange:
    change = admin_pb2.ConfigChange(
        entity_type=ENTITY_TYPES[resource["resource_type"]],
        entity_name=resource["resource_name"],
    )
    into = {_SET: change.values, _APPEND: change.appended, _SUBTRACT: change.subtracted}
    _check_named_once(one["name"] for one in resource["configs"])
    for one in resource["configs"]:
        name, value, operation = one["name"], one["value"], one["config_operation"]
        if operation == _DELETE:
            change.removed.append(name)
        elif operation not in into:
            raise KafkaError(
                errors_pb2.INVALID_REQUEST,
                f"{name}: {operation} is no operation: 0 sets, 1 deletes, 2 appends, 3 subtracts",
            )
        else:
            into[operation][name] = _not_null(name, value)
    return change


def _replacement(resource: Message) -> admin_pb2.ConfigReplacement:
    _check_named_once(one["name"] for one in resource["configs"])
    return admin_pb2.ConfigReplacement(
        entity_type=ENTITY_TYPES[resource["resource_type"]],
        entity_name=resource["resource_name"],
        values={one["name"]: _not_null(one["name"], one["value"]) for one in resource["configs"]},
    )


def _check_named_once(names: Iterable[str]) -> None:
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise KafkaError(errors_pb2.INVALID_REQUEST, f"named more than once: {', '.join(twice)}")


def _not_null(name: str, value: str | None) -> str:
    if value is None:
        raise KafkaError(
            errors_pb2.INVALID_REQUEST, f"{name} has no value: delete it, or give it one"
        )
    return value


def _outcomes(
    asked: Iterable[Resource], results: Sequence[admin_pb2.ConfigResult], error_code: int
) -> dict[Resource, Outcome]:
    """Return the controller's result for each resource, or the failure of the whole request."""
    if not results:
        failed = (error_code or errors_pb2.UNKNOWN_SERVER_ERROR, "")
        return dict.fromkeys(asked, failed)
    outcomes = [(one.error_code, one.error_message) for one in results]
    return dict(zip(asked, outcomes, strict=True))


def _altered(resources: Sequence[Message], outcomes: Mapping[Resource, Outcome]) -> Message:
    return {
        "throttle_time": 0,
        "responses": [
            {
                "error_code": outcomes[resource][0],
                "error_message": outcomes[resource][1] or None,
                "resource_type": resource[0],
                "resource_name": resource[1],
            }
            for resource in dict.fromkeys(map(_resource, resources))
        ],
    }
