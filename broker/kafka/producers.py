"""InitProducerId (22): an id for a producer without transactions.

Most producers are idempotent by default. Nothing is remembered of an id here: who asks again, after
a fault or because an answer was lost, gets another one, as from Kafka. A producer that goes on with
its own id begins its next epoch by itself (KIP-360); ``broker.log.producers`` judges both.
"""

from typing import Final

from broker.errors import KafkaError
from broker.kafka import codec
from broker.kafka.codec import Message
from broker.kafka.requests import Buffers, RequestContext
from broker.kafka.services import KafkaServices
from quorate_proto.v1 import errors_pb2

_NO_PRODUCER_ID: Final = -1
_FIRST_EPOCH: Final = 0


async def init_producer_id(
    services: KafkaServices, context: RequestContext, request: Message
) -> Buffers:
    values: Message = {"throttle_time": 0, "error_code": errors_pb2.NONE}
    try:
        if request["transactional_id"] is not None:
            raise no_transactions(request["transactional_id"])
        services.authorizer.rights_of(context).require_idempotent_write()
        producer_id = await services.producer_ids.take()
        values.update(producer_id=producer_id, producer_epoch=_FIRST_EPOCH)
    except KafkaError as error:
        values.update(error_code=error.code, producer_id=_NO_PRODUCER_ID, producer_epoch=-1)
    return [codec.encode_response("init_producer_id", context.version, values)]


def no_transactions(transactional_id: str) -> KafkaError:
    """Refusal of everything transactional: a code at which clients give up and don't retry."""
    return KafkaError(
        errors_pb2.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        f"transactional.id={transactional_id}: this cluster has no transactions; "
        "produce without a transactional.id",
    )
