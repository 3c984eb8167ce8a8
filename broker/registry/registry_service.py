"""``SchemaRegistry``, the gRPC service by which brokers pass requests on to the leader of the
registry's topic."""

from typing import Any, TypeAlias

import grpc.aio

from quorate.broker.common.errors import KafkaError
from quorate.broker.coordinator.shards.coordinator_records import CommitOutcomeUnknown
from quorate.broker.registry.operations.calls import RegistryCall
from quorate.broker.registry.operations.table import BY_NAME
from quorate.broker.registry.registry_errors import RegistryError
from quorate.broker.registry.registry_json import json_bytes
from quorate.broker.registry.registry_shard import RegistryLeader
from quorate.broker.security.authorizer import Authorizer, caller_of
from quorate_proto.v1 import errors_pb2, registry_pb2, registry_pb2_grpc

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


class SchemaRegistryService(registry_pb2_grpc.SchemaRegistryServicer):
    """Serves the registry's requests of other brokers on one broker."""

    def __init__(self, leader: RegistryLeader, authorizer: Authorizer) -> None:
        self._leader = leader
        self._authorizer = authorizer

    async def Call(
        self, request: registry_pb2.RegistryRequest, context: Context
    ) -> registry_pb2.RegistryResponse:
        """Carry a request out, for the client on whose behalf a broker sends it."""
        shard, operation = self._leader.shard, BY_NAME.get(request.operation)
        if shard is None:
            return _not_leader()
        if operation is None:
            message = f"{request.operation[:80]} is served by newer brokers only"
            return registry_pb2.RegistryResponse(status=501, refusal_code=501, message=message)
        rights = self._authorizer.rights_of(caller_of(request.context))
        try:
            answer = await shard.carry_out(operation, _call_of(request), rights)
        except RegistryError as error:
            return registry_pb2.RegistryResponse(
                status=error.status, refusal_code=error.code, message=error.message
            )
        except CommitOutcomeUnknown:
            return registry_pb2.RegistryResponse(error_code=errors_pb2.REQUEST_TIMED_OUT)
        except KafkaError:
            return _not_leader()
        return registry_pb2.RegistryResponse(status=200, body=json_bytes(answer))


def _call_of(request: registry_pb2.RegistryRequest) -> RegistryCall:
    query = [(one.name, one.value) for one in request.query]
    return RegistryCall(dict(request.parameters), query, request.body)


def _not_leader() -> registry_pb2.RegistryResponse:
    return registry_pb2.RegistryResponse(error_code=errors_pb2.NOT_LEADER_OR_FOLLOWER)


def add_registry_to_server(server: grpc.aio.Server, service: SchemaRegistryService) -> None:
    registry_pb2_grpc.add_SchemaRegistryServicer_to_server(service, server)
