"""Makes what clients write: as controllers and brokers do, from the image they have last read."""

from random import Random

from quorate.common.types import BrokerId, ControllerEpoch, Endpoint, SessionId
from quorate.metadata_log.features import NEWEST_METADATA_VERSION
from quorate.metadata_log.image import Image
from quorate.metadata_log.paths import PRODUCER_IDS
from quorate.metadata_log.records import (
    AtVersion,
    BrokerRegistration,
    ConfigSet,
    ControllerClaim,
    ControllerEpochIs,
    Operation,
    ProducerIdBlock,
)

REGISTERS = 3


def claim(image: Image, broker_id: BrokerId, session: SessionId) -> Operation:
    """Become the controller: it is lost with the session."""
    nowhere = Endpoint("localhost", 1)
    return Operation(
        records=(
            BrokerRegistration(
                broker_id=broker_id,
                session_id=session,
                incarnation_id=bytes(session),
                kafka=nowhere,
                grpc=nowhere,
                metadata_version_max=NEWEST_METADATA_VERSION,
            ),
            ControllerClaim(
                broker_id=broker_id,
                session_id=session,
                timestamp_ms=1,
                controller_epoch=ControllerEpoch(image.controller_epoch + 1),
            ),
        )
    )


def write(image: Image, draw: Random, value: str) -> Operation:
    """A compare-and-set of the one counter, or a blind write to one of a few registers."""
    epoch = ControllerEpochIs(controller_epoch=image.controller_epoch)
    if draw.random() < 0.4:
        seen = image.next_producer_id
        return Operation(
            conditions=(epoch, AtVersion(path=PRODUCER_IDS, version=seen)),
            records=(ProducerIdBlock(next_producer_id=seen + 1),),
        )
    register = f"r{draw.randrange(REGISTERS)}"
    return Operation(
        conditions=(epoch,),
        records=(ConfigSet(entity_type="topics", entity_name=register, key="k", value=value),),
    )
