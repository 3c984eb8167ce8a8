"""Describes and alters the configuration of topics and brokers."""

from collections.abc import Iterable, Sequence

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


def incremental_alter_configs(
    changes: Sequence[ConfigChange], *, validate_only: bool = False
) -> Steps[list[ConfigResult]]:
    """Set, remove, append and subtract values; return one result per entity, in order."""
    request = admin_pb2.IncrementalAlterConfigsRequest(
        changes=[change.to_proto() for change in changes], validate_only=validate_only
    )
    answer: admin_pb2.IncrementalAlterConfigsResponse = yield ToController(
        "IncrementalAlterConfigs", request, "changing configurations"
    )
    return [ConfigResult.from_proto(result) for result in answer.results]


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
        if entity.entity_type == "broker" and entity.entity_name:
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
    addresses = {}
    if by_broker:
        status = yield from cluster_status()
        addresses = {str(broker.id): broker.grpc for broker in status.brokers}
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
    why = (
        f"broker {broker} does not answer, and it alone knows its configuration: is it running?"
        if broker.isdecimal()
        else f"{broker!r} is no broker id"
    )
    return admin_pb2.DescribeConfigsResponse(
        results=[
            admin_pb2.DescribedConfig(
                entity_type=entity.entity_type,
                entity_name=entity.entity_name,
                error_code=errors_pb2.BROKER_NOT_AVAILABLE,
                error_message=why,
            )
            for entity in entities
        ]
    )
