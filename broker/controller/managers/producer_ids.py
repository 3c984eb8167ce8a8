"""Hands out producer ids in blocks: each id is given to one producer, ever."""

from typing import Final, NamedTuple

from broker.controller.managers.office import Office
from metadata_log.image import Image
from metadata_log.records import Operation, ProducerIdBlock
from metadata_log.types import BrokerId
from quorate_proto.v1 import admin_pb2, errors_pb2

BLOCK_SIZE: Final = 1000
"""A broker asks once per thousand producers; what it has not used when it stops is lost."""


class ProducerIdDecision(NamedTuple):
    """The answer, true once ``operation`` is applied; None: refused."""

    response: admin_pb2.AllocateProducerIdsResponse
    operation: Operation | None = None


def allocate(
    image: Image, request: admin_pb2.AllocateProducerIdsRequest, *, office: Office
) -> ProducerIdDecision:
    """The next block, for a broker in its current incarnation."""
    broker = image.brokers.get(BrokerId(request.broker_id))
    if broker is None or broker.epoch != request.broker_epoch:
        return ProducerIdDecision(
            admin_pb2.AllocateProducerIdsResponse(error_code=errors_pb2.STALE_BROKER_EPOCH)
        )
    first = image.next_producer_id
    return ProducerIdDecision(
        admin_pb2.AllocateProducerIdsResponse(first_producer_id=first, count=BLOCK_SIZE),
        office.operation(ProducerIdBlock(next_producer_id=first + BLOCK_SIZE)),
    )
