"""InitProducerId (22): who a producer is.

Most producers are idempotent by default. Nothing is remembered of an id without a transactional
one: who asks again, even with an id and an epoch of its own (KIP-360), gets a new id, as from
Kafka. The next epoch of the old one could be given to two who ask for it, and what the one sends
would pass for retries of the other's. A producer that goes on with its id begins its next epoch by
itself, and ``broker.log.producers`` judges.

By its transactional id a producer is known to the coordinator of transactions, which gives it the
next epoch and so shuts out whoever went by that id before.
"""

from typing import Final

from broker.coordinator.transactions.transaction import NO_EPOCH, NO_PRODUCER_ID, ProducerEpoch
from broker.errors import KafkaError
from broker.kafka import codec
from broker.kafka.codec import Message
from broker.kafka.requests import Buffers, RequestContext
from broker.kafka.services import KafkaServices
from broker.kafka.transactions import fenced_as
from metadata_log.acls import AclOperation
from quorate_proto.v1 import errors_pb2

_FIRST_EPOCH: Final = 0
_FIRST_WITH_PRODUCER_FENCED: Final = 4


async def init_producer_id(
    services: KafkaServices, context: RequestContext, request: Message
) -> Buffers:
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
    return [codec.encode_response("init_producer_id", context.version, values)]


async def _init(
    services: KafkaServices, context: RequestContext, request: Message
) -> ProducerEpoch:
    rights = services.authorizer.rights_of(context)
    transactional_id: str | None = request["transactional_id"]
    if transactional_id is None:
        rights.require_idempotent_write()
        _own(request)
        return ProducerEpoch(await services.producer_ids.take(), _FIRST_EPOCH)
    rights.require_transactional_id(AclOperation.WRITE, transactional_id)
    own = _own(request)
    timeout_ms: int = request["transaction_timeout"]
    shard = services.transactions.shard_of(transactional_id)
    services.transactions.check_timeout(transactional_id, timeout_ms)
    return await shard.init_producer(transactional_id, timeout_ms, own)


def _own(request: Message) -> ProducerEpoch | None:
    """What the producer was until now; None: nothing.

    Raises:
        KafkaError: INVALID_REQUEST.
    """
    producer_id = request.get("producer_id", NO_PRODUCER_ID)
    epoch = request.get("producer_epoch", NO_EPOCH)
    if (producer_id == NO_PRODUCER_ID) != (epoch == NO_EPOCH):
        raise KafkaError(
            errors_pb2.INVALID_REQUEST,
            f"producer id {producer_id} comes with epoch {epoch}: send both or neither (-1)",
        )
    return None if producer_id == NO_PRODUCER_ID else ProducerEpoch(producer_id, epoch)
