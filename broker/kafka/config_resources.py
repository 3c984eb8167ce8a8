"""ListConfigResources (74): what has a configuration of its own (KIP-1142).

Client metrics and groups have none here, and brokers' loggers are not configured over the wire:
asked for by name, there are none of them.
"""

from collections.abc import Iterator
from typing import Final

from broker.kafka import codec
from broker.kafka.codec import Message
from broker.kafka.requests import Buffers, RequestContext
from broker.kafka.services import KafkaServices
from broker.told_metadata import endpoints_at
from metadata_log.acls import AclOperation
from quorate_proto.v1 import errors_pb2

_TOPIC, _BROKER, _BROKER_LOGGER, _CLIENT_METRICS, _GROUP = 2, 4, 8, 16, 32
_FIRST_VERSION_OF_ALL: Final = 1
_KNOWN: Final = frozenset({_TOPIC, _BROKER, _BROKER_LOGGER, _CLIENT_METRICS, _GROUP})


async def list_config_resources(
    services: KafkaServices, context: RequestContext, request: Message
) -> Buffers:
    """Version 0 knows client metrics alone."""
    known = _KNOWN if context.version >= _FIRST_VERSION_OF_ALL else {_CLIENT_METRICS}
    wanted = frozenset(request.get("resource_types", ())) or known
    code = errors_pb2.NONE
    found: list[Message] = []
    rights = services.authorizer.rights_of(context)
    if not rights.may_cluster(AclOperation.DESCRIBE_CONFIGS):
        code = errors_pb2.CLUSTER_AUTHORIZATION_FAILED
    elif not wanted <= known:
        code = errors_pb2.UNSUPPORTED_VERSION
    else:
        found = [
            {"resource_type": kind, "resource_name": name}
            for kind, name in _resources(services, context)
            if kind in wanted
        ]
    values = {"throttle_time": 0, "error_code": code, "config_resources": found}
    return [codec.encode_response("list_config_resources", context.version, values)]


def _resources(services: KafkaServices, context: RequestContext) -> Iterator[tuple[int, str]]:
    metadata = services.metadata
    for broker_id in endpoints_at(metadata.brokers, context.listener):
        yield _BROKER, str(broker_id)
    for topic in metadata.topics:
        yield _TOPIC, topic
