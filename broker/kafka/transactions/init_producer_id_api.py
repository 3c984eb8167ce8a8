"""InitProducerId (22): the id and the epoch of a producer.

Most producers are idempotent by default. Nothing is stored about a producer id without a
transactional id. A producer that asks again, even with an id and an epoch of its own (KIP-360),
gets a new id, as in Kafka. Otherwise two producers could get the same next epoch of the old id, and
batches of one would be taken for retries of the other's. A producer that keeps its id begins its
next epoch by itself, and the log's producer state checks it.

The transaction coordinator knows a producer by its transactional id. It gives the producer the next
epoch, and so fences earlier producers with that transactional id.
"""

from typing import Final

from quorate.broker.common.errors import KafkaError
from quorate.broker.coordinator.transactions.state.transaction_metadata import (
    NO_EPOCH,
    NO_PRODUCER_ID,
    ProducerEpoch,
)
from quorate.broker.kafka.connection.requests import RequestContext
from quorate.broker.kafka.services import KafkaServices
from quorate.broker.kafka.transactions.transaction_apis import fenced_as
from quorate.broker.kafka.wire.codec import Message
from quorate.common.acl_types import AclOperation
from quorate_proto.v1 import errors_pb2

_FIRST_EPOCH: Final = 0
_FIRST_WITH_PRODUCER_FENCED: Final = 4


async def init_producer_id(
    services: KafkaServices, context: RequestContext, request: Message
) -> Message:
    code: int = errors_pb2.NONE
    producer = ProducerEpoch(NO_PRODUCER_ID, NO_EPOCH)
    try:
        producer = await _init(services, context, request)
    except KafkaError as error:
        code = fenced_as(error.code, context.version >= _FIRST_WITH_PRODUCER_FENCED)
    values: Message = {
        "throttle_time": 0,
        "error_code": code,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.epoch,
    }
    return values


async def _init(
    services: KafkaServices, context: RequestContext, request: Message
) -> ProducerEpoch:
    rights = services.authorizer.rights_of(context)
    transactional_id: str | None = request["transactional_id"]
    if transactional_id is None:
        rights.require_idempotent_write()
        _current_producer(request)
        return ProducerEpoch(await services.producer_ids.take(), _FIRST_EPOCH)
    rights.require_transactional_id(AclOperation.WRITE, transactional_id)
    current = _current_producer(request)
    timeout_ms: int = request["transaction_timeout"]
    shard = services.transactions.shard_of(transactional_id)
    services.transactions.check_timeout(transactional_id, timeout_ms)
    return await shard.init_producer(transactional_id, timeout_ms, current)


def _current_producer(request: Message) -> ProducerEpoch | None:
    """Return the producer id and epoch that the producer has had until now, or None if it has none.

    Raises:
        KafkaError: INVALID_REQUEST, because the request has only one of the two.
    """
    producer_id = request.get("producer_id", NO_PRODUCER_ID)
    epoch = request.get("producer_epoch", NO_EPOCH)
    if (producer_id == NO_PRODUCER_ID) != (epoch == NO_EPOCH):
        raise KafkaError(
            errors_pb2.INVALID_REQUEST,
            f"producer id {producer_id} comes with epoch {epoch}: send both or neither (-1)",
        )
    return None if producer_id == NO_PRODUCER_ID else ProducerEpoch(producer_id, epoch)
