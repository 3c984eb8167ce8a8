"""DescribeCluster (60): the brokers, with their gRPC addresses for Quorate's own clients.

No broker is fenced (KIP-1073): the registration of a broker ends with its session.
"""

from typing import Final

from quorate.broker.kafka.connection.requests import RequestContext
from quorate.broker.kafka.services import KafkaServices
from quorate.broker.kafka.wire.codec import TAGS, Message
from quorate.broker.metadata.metadata_cache import endpoints_at
from quorate.common.types import NO_BROKER
from quorate_proto.v1 import errors_pb2

GRPC_ENDPOINT_TAG: Final = 10_000
"""The tagged field of each broker that contains its gRPC "host:port", in raw UTF-8. Other
clients skip unknown tags.
"""

_BROKERS: Final = 1
"""The endpoint type of brokers, as opposed to KRaft controllers, which Quorate does not have."""


async def describe_cluster(
    services: KafkaServices, context: RequestContext, request: Message
) -> Message:
    metadata = services.metadata
    endpoint_type = request.get("endpoint_type", _BROKERS)
    controller_id = metadata.controller_id
    endpoints = endpoints_at(metadata.brokers, context.listener)
    values: Message = {
        "throttle_time": 0,
        "error_code": errors_pb2.NONE,
        "endpoint_type": endpoint_type,
        "cluster_id": services.cluster_id,
        "controller_id": controller_id if controller_id in endpoints else NO_BROKER,
        "brokers": [
            {
                "broker_id": broker_id,
                "host": endpoint.host,
                "port": endpoint.port,
                "rack": metadata.brokers[broker_id].rack or None,
                "is_fenced": False,
                TAGS: {GRPC_ENDPOINT_TAG: str(metadata.brokers[broker_id].grpc).encode()},
            }
            for broker_id, endpoint in endpoints.items()
        ],
    }
    if request["include_cluster_authorized_operations"]:
        rights = services.authorizer.rights_of(context)
        values["cluster_authorized_operations"] = rights.cluster_operations()
    if endpoint_type != _BROKERS:
        values["error_code"] = errors_pb2.INVALID_REQUEST
        values["error_message"] = f"endpoint type {endpoint_type}: only 1 (brokers) is served"
        values["brokers"] = []
    return values
