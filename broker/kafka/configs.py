"""DescribeConfigs (32), AlterConfigs (33) and IncrementalAlterConfigs (44).

Descriptions are this broker's own, changes are the controller's. Kafka numbers the resources; what
has no configuration here is refused, each resource for itself.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from broker.control.changes import ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS
from broker.errors import KafkaError
from broker.kafka import codec
from broker.kafka.admin_context import admin_context, ask_controller
from broker.kafka.codec import Message
from broker.kafka.requests import Buffers, RequestContext
from broker.kafka.services import KafkaServices
from quorate_proto.v1 import admin_pb2, errors_pb2

ENTITY_TYPES: Final[Mapping[int, str]] = {2: "topic", 4: "broker"}
"""Kafka's resource types that have a configuration here."""

_SET, _DELETE, _APPEND, _SUBTRACT = range(4)

_TIMEOUT_MS: Final = 30_000
"""These requests name no deadline of their own."""

Outcome = tuple[int, str]
"""Error code and message of one resource."""

Resource = tuple[int, str]
"""Kafka's resource type, and the name."""

E = TypeVar("E")


# -- asked ---------------------------------------------------------------------------------------


async def describe_configs(
    services: KafkaServices, context: RequestContext, request: Message
) -> Buffers:
    resources = request["resources"]
    served = [one for one in resources if one["resource_type"] in ENTITY_TYPES]
    described = await services.describe_configs(
        admin_pb2.DescribeConfigsRequest(
            context=admin_context(context, "DescribeConfigs", _TIMEOUT_MS),
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
    return [codec.encode_response("describe_configs", context.version, values)]


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


# -- changed -------------------------------------------------------------------------------------


async def incremental_alter_configs(
    services: KafkaServices, context: RequestContext, request: Message
) -> Buffers:
    changes, refused = _taken(request["resources"], _change)
    answer = await ask_controller(
        services,
        context,
        INCREMENTAL_ALTER_CONFIGS,
        admin_pb2.IncrementalAlterConfigsRequest(
            context=admin_context(context, "IncrementalAlterConfigs", _TIMEOUT_MS),
            changes=changes.values(),
            validate_only=request["validate_only"],
        ),
    )
    outcomes = refused | _outcomes(changes, answer.results, answer.error_code)
    values = _altered(request["resources"], outcomes)
    return [codec.encode_response("incremental_alter_configs", context.version, values)]


async def alter_configs(
    services: KafkaServices, context: RequestContext, request: Message
) -> Buffers:
    replacements, refused = _taken(request["resources"], _replacement)
    answer = await ask_controller(
        services,
        context,
        ALTER_CONFIGS,
        admin_pb2.AlterConfigsRequest(
            context=admin_context(context, "AlterConfigs", _TIMEOUT_MS),
            replacements=replacements.values(),
            validate_only=request["validate_only"],
        ),
    )
    outcomes = refused | _outcomes(replacements, answer.results, answer.error_code)
    values = _altered(request["resources"], outcomes)
    return [codec.encode_response("alter_configs", context.version, values)]


def _taken(
    resources: Sequence[Message], read: Callable[[Message], E]
) -> tuple[dict[Resource, E], dict[Resource, Outcome]]:
    """What the controller is asked, and what is refused before: a resource named twice, say."""
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
    """What the controller said of each resource; nothing where the request failed as a whole."""
    if not results:
        failed = (error_code or errors_pb2.UNKNOWN_SERVER_ERROR, "")
        return dict.fromkeys(asked, failed)
    told = [(one.error_code, one.error_message) for one in results]
    return dict(zip(asked, told, strict=True))


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
