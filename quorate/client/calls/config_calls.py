"""Describes and alters the configuration of topics and brokers."""

from collections.abc import Iterable, Sequence
from typing import Final

from quorate.client.call_steps import Steps, ToAllBrokers, ToAnyBroker, ToController
from quorate.client.calls.cluster_calls import cluster_status
from quorate.client.errors import RequestFailed
from quorate.client.results import (
    ConfigChange,
    ConfigDescription,
    ConfigEntity,
    ConfigReplacement,
    ConfigResult,
)
from quorate_proto.v1 import admin_pb2, errors_pb2

BROKER_LOGGER: Final = "broker-logger"


def incremental_alter_configs(
    changes: Sequence[ConfigChange], *, validate_only: bool = False
) -> Steps[list[ConfigResult]]:
    """Set, remove, append and subtract values; return one result per entity, in order.

    The levels of a broker's loggers are changed by that broker, and all else by the controller.
    """
    found: dict[int, ConfigResult] = {}
    others = {
        position: change
        for position, change in enumerate(changes)
        if change.entity_type != BROKER_LOGGER
    }
    if others or not changes:
        request = _alteration(others.values(), validate_only=validate_only)
        answer: admin_pb2.IncrementalAlterConfigsResponse = yield ToController(
            "IncrementalAlterConfigs", request, "changing configurations"
        )
        found |= zip(others, map(ConfigResult.from_proto, answer.results), strict=True)
    for position, change in enumerate(changes):
        if position not in others:
            found[position] = yield from _alter_loggers(change, validate_only=validate_only)
    return [found[position] for position in range(len(changes))]


def _alteration(
    changes: Iterable[ConfigChange], *, validate_only: bool
) -> admin_pb2.IncrementalAlterConfigsRequest:
    return admin_pb2.IncrementalAlterConfigsRequest(
        changes=[change.to_proto() for change in changes], validate_only=validate_only
    )


def _alter_loggers(change: ConfigChange, *, validate_only: bool) -> Steps[ConfigResult]:
    """Have a broker change the levels of its loggers."""
    broker = change.entity_name
    address = (yield from _broker_addresses()).get(broker)
    answer: admin_pb2.IncrementalAlterConfigsResponse | None = None
    if address is not None:
        request = _alteration([change], validate_only=validate_only)
        answers = yield ToAllBrokers([address], "IncrementalAlterConfigs", request)
        answer = answers[address]
    if answer is not None and answer.results:
        return ConfigResult.from_proto(answer.results[0])
    refused = admin_pb2.ConfigResult(
        entity_type=change.entity_type,
        entity_name=broker,
        error_code=errors_pb2.BROKER_NOT_AVAILABLE,
        error_message=_why_not_there(broker),
    )
    return ConfigResult.from_proto(refused)


def _broker_addresses() -> Steps[dict[str, str]]:
    """Return the gRPC address of each live broker, by its id in words."""
    status = yield from cluster_status()
    return {str(broker.id): broker.grpc for broker in status.brokers}


def alter_configs(
    replacements: Sequence[ConfigReplacement], *, validate_only: bool = False
) -> Steps[list[ConfigResult]]:
    """Replace all values that are set for each entity; return one result per entity, in order."""
    request = admin_pb2.AlterConfigsRequest(
        replacements=[one.to_proto() for one in replacements], validate_only=validate_only
    )
    answer: admin_pb2.AlterConfigsResponse = yield ToController(
        "AlterConfigs", request, "replacing configurations"
    )
    return [ConfigResult.from_proto(result) for result in answer.results]


def list_config_entities(entity_type: str) -> Steps[list[str]]:
    """Return the names of the entities of a type that have a configuration of their own, sorted.

    ``entity_type`` is "client-metrics".

    Raises:
        RequestFailed: the client is not authorized, or entities of the type are not listed.
    """
    request = admin_pb2.ListConfigEntitiesRequest(entity_type=entity_type)
    answer: admin_pb2.ListConfigEntitiesResponse = yield ToAnyBroker("ListConfigEntities", request)
    if answer.error_code:
        raise RequestFailed(answer.error_code, answer.error_message)
    return list(answer.entity_names)


def describe_configs(
    entities: Sequence[ConfigEntity],
    *,
    include_synonyms: bool = False,
    include_documentation: bool = False,
) -> Steps[list[ConfigDescription]]:
    """Return one description per entity, in order. A broker describes its own configuration
    itself."""
    found: dict[int, ConfigDescription] = {}
    anybody: dict[int, ConfigEntity] = {}
    by_broker: dict[str, dict[int, ConfigEntity]] = {}
    for position, entity in enumerate(entities):
        if entity.entity_type == BROKER_LOGGER or (
            entity.entity_type == "broker" and entity.entity_name
        ):
            by_broker.setdefault(entity.entity_name, {})[position] = entity
        else:
            anybody[position] = entity

    def request(some: dict[int, ConfigEntity]) -> admin_pb2.DescribeConfigsRequest:
        return admin_pb2.DescribeConfigsRequest(
            entities=[entity.to_proto() for entity in some.values()],
            include_synonyms=include_synonyms,
            include_documentation=include_documentation,
        )

    def take(some: dict[int, ConfigEntity], answer: admin_pb2.DescribeConfigsResponse) -> None:
        found.update(
            (position, ConfigDescription.from_proto(result))
            for position, result in zip(some, answer.results, strict=True)
        )

    if anybody:
        take(anybody, (yield ToAnyBroker("DescribeConfigs", request(anybody))))
    addresses = (yield from _broker_addresses()) if by_broker else {}
    for broker, some in by_broker.items():
        address = addresses.get(broker)
        answer = None
        if address is not None:
            answers = yield ToAllBrokers([address], "DescribeConfigs", request(some))
            answer = answers[address]
        take(some, answer or _not_there(broker, some.values()))
    return [found[position] for position in range(len(entities))]


def _not_there(broker: str, entities: Iterable[ConfigEntity]) -> admin_pb2.DescribeConfigsResponse:
    """Return the response that stands for a broker that does not answer."""
    return admin_pb2.DescribeConfigsResponse(
        results=[
            admin_pb2.DescribedConfig(
                entity_type=entity.entity_type,
                entity_name=entity.entity_name,
                error_code=errors_pb2.BROKER_NOT_AVAILABLE,
                error_message=_why_not_there(broker),
            )
            for entity in entities
        ]
    )


def _why_not_there(broker: str) -> str:
    if not broker.isdecimal():
        return f"{broker!r} is no broker id"
    return f"broker {broker} does not answer, and it alone knows its configuration: is it running?"
