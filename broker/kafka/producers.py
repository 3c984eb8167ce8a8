"""InitProducerId (22): an id for a producer without transactions.

Most producers are idempotent by default. Nothing is remembered of an id here: who asks again, even
with an id and an epoch of its own (KIP-360), gets a new id, as from Kafka. The next epoch of the
old one could be given to two who ask for it, and what the one sends would pass for retries of the
other's. A producer that goes on with its id begins its next epoch by itself, and
``broker.log.producers`` judges.
"""

from typing import Final

from broker.errors import KafkaError
from broker.kafka import codec
from broker.kafka.codec import Message
from broker.kafka.requests import Buffers, RequestContext
from broker.kafka.services import KafkaServices
from quorate_proto.v1 import errors_pb2

_NO_PRODUCER_ID: Final = -1
_NO_EPOCH: Final = -1
_FIRST_EPOCH: Final = 0


async def init_producer_id(
    services: KafkaServices, context: RequestContext, request: Message
) -> Buffers:
    values: Message = {"throttle_time": 0, "error_code": errors_pb2.NONE}
    try:
        if request["transactional_id"] is not None:
            raise no_transactions(request["transactional_id"])
        _check_own(request)
        services.authorizer.rights_of(context).require_idempotent_write()
        producer_id = await services.producer_ids.take()
        values.update(producer_id=producer_id, producer_epoch=_FIRST_EPOCH)
    except KafkaError as error:
        values.update(error_code=error.code, producer_id=_NO_PRODUCER_ID, producer_epoch=_NO_EPOCH)
    return [codec.encode_response("init_producer_id", context.version, values)]


def _check_own(request: Message) -> None:
    producer_id, epoch = request.get("producer_id", -1), request.get("producer_epoch", -1)
    if (producer_id == _NO_PRODUCER_ID) != (epoch == _NO_EPOCH):
        raise KafkaError(
            errors_pb2.INVALID_REQUEST,
            f"producer id {producer_id} comes with epoch {epoch}: send both or neither (-1)",
        )


def no_transactions(transactional_id: str) -> KafkaError:
    """Refusal of everything transactional: a code at which clients give up and don't retry."""
    return KafkaError(
        errors_pb2.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        f"transactional.id={transactional_id}: this cluster has no transactions; "
        "produce without a transactional.id",
    )
