"""Allocates producer ids in blocks. Each id is given to one producer and never again."""

from typing import Final, NamedTuple

from quorate.broker.controller.managers.decisions import ControllerTenure
from quorate.common.types import BrokerId
from quorate.metadata_log.image import Image
from quorate.metadata_log.records import Operation, ProducerIdBlock
from quorate_proto.v1 import admin_pb2, errors_pb2

BLOCK_SIZE: Final = 1000
"""The ids of one block. A broker asks once per thousand producers, and the rest is lost when it
stops."""


class ProducerIdDecision(NamedTuple):
    """The answer, which becomes true when ``operation`` is applied. A refusal has no operation."""

    response: admin_pb2.AllocateProducerIdsResponse
    operation: Operation | None = None


def allocate(
    image: Image, request: admin_pb2.AllocateProducerIdsRequest, *, tenure: ControllerTenure
) -> ProducerIdDecision:
    """Allocate the next block to a broker in its current incarnation."""
    broker = image.brokers.get(BrokerId(request.broker_id))
    if broker is None or broker.epoch != request.broker_epoch:
        return ProducerIdDecision(
            admin_pb2.AllocateProducerIdsResponse(error_code=errors_pb2.STALE_BROKER_EPOCH)
        )
    first = image.next_producer_id
    return ProducerIdDecision(
        admin_pb2.AllocateProducerIdsResponse(first_producer_id=first, count=BLOCK_SIZE),
        tenure.operation(ProducerIdBlock(next_producer_id=first + BLOCK_SIZE)),
    )
