"""InitProducerId (22) and FindCoordinator (10), as far as producers and consumers need to start.

There are no groups and no transactions yet. A producer without transactions gets an id; a search
for a coordinator is answered with "not now", which makes no client that assigns its own partitions
stumble.
"""

from typing import Final

from broker.errors import KafkaError
from broker.kafka import codec
from broker.kafka.codec import Message
from broker.kafka.requests import Buffers, RequestContext
from broker.kafka.services import KafkaServices
from metadata_log.types import NO_BROKER
from quorate_proto.v1 import errors_pb2

_NO_PRODUCER_ID: Final = -1
_FIRST_BATCHED_VERSION: Final = 4
_GROUP: Final = 0


async def init_producer_id(
    services: KafkaServices, context: RequestContext, request: Message
) -> Buffers:
    values: Message = {"throttle_time": 0, "error_code": errors_pb2.NONE, "producer_epoch": 0}
    try:
        if request["transactional_id"] is not None:
            raise KafkaError(
                errors_pb2.INVALID_REQUEST,
                f"transactional.id={request['transactional_id']}: this cluster has no transactions",
            )
        values["producer_id"] = await services.producer_ids.take()
    except KafkaError as error:
        values.update(
            error_code=error.code, producer_id=_NO_PRODUCER_ID, producer_epoch=_NO_PRODUCER_ID
        )
    return [codec.encode_response("init_producer_id", context.version, values)]


async def find_coordinator(
    services: KafkaServices, context: RequestContext, request: Message
) -> Buffers:
    key_type = request.get("key_type", _GROUP)
    if context.version < _FIRST_BATCHED_VERSION:
        values = {"throttle_time": 0, **_no_coordinator(key_type, request["key"])}
    else:
        keys = request["coordinator_keys"]
        coordinators = [{"key": key, **_no_coordinator(key_type, key)} for key in keys]
        values = {"throttle_time": 0, "coordinators": coordinators}
    return [codec.encode_response("find_coordinator", context.version, values)]


def _no_coordinator(key_type: int, key: str) -> Message:
    if key_type == _GROUP:
        code = errors_pb2.COORDINATOR_NOT_AVAILABLE
        message = f"group {key!r}: this cluster has no consumer groups; assign partitions instead"
    else:
        code = errors_pb2.INVALID_REQUEST
        message = f"transactional.id {key!r}: this cluster has no transactions"
    return {
        "error_code": code,
        "error_message": message,
        "node_id": NO_BROKER,
        "host": "",
        "port": -1,
    }
