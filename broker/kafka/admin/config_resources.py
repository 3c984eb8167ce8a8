"""The API ListConfigResources (74): lists the resources that have a configuration of their own
(KIP-1142).

Groups have none here, and brokers' loggers are not configured over the wire. A client that asks for
these types gets an empty list.
"""

from collections.abc import Iterator
from typing import Final

from quorate.broker.kafka.connection.answer_price import AnswerPrice
from quorate.broker.kafka.connection.requests import RequestContext
from quorate.broker.kafka.services import KafkaServices
from quorate.broker.kafka.wire.codec import Message
from quorate.broker.metadata.metadata_cache import endpoints_at
from quorate.common.acl_types import AclOperation
from quorate_proto.v1 import errors_pb2

_TOPIC, _BROKER, _BROKER_LOGGER, _CLIENT_METRICS, _GROUP = 2, 4, 8, 16, 32
_FIRST_VERSION_OF_ALL: Final = 1
_KNOWN: Final = frozenset({_TOPIC, _BROKER, _BROKER_LOGGER, _CLIENT_METRICS, _GROUP})


async def list_config_resources(
    services: KafkaServices, context: RequestContext, request: Message
) -> Message:
    """Answer with the requested types of resources. Version 0 of the API only knows client
    metrics."""
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
        await AnswerPrice(services, context).add(len(services.metadata.topics))
        found = [
            {"resource_type": kind, "resource_name": name}
            async for kind, name in services.turns.through(tuple(_resources(services, context)))
            if kind in wanted
        ]
    values = {"throttle_time": 0, "error_code": code, "config_resources": found}
    return values


def _resources(services: KafkaServices, context: RequestContext) -> Iterator[tuple[int, str]]:
    metadata = services.metadata
    for broker_id in endpoints_at(metadata.brokers, context.listener):
        yield _BROKER, str(broker_id)
    for topic in metadata.topics:
        yield _TOPIC, topic
    for subscription in services.telemetry.subscription_names:
        yield _CLIENT_METRICS, subscription
