"""Who holds /controller, changed by hand: each change is one whole operation (E5)."""

from metadata_log.image import Image
from metadata_log.records import (
    ControllerClaim,
    ControllerEpochIs,
    ControllerRemoved,
    Operation,
)
from metadata_log.types import NO_BROKER, BrokerId, ControllerEpoch


class CannotTakeOffice(ValueError):
    """That broker cannot be the controller; the message says why."""


def vacate(image: Image, holder: BrokerId = NO_BROKER) -> Operation:
    """Take whoever is in office off /controller; with ``holder``, that broker alone."""
    return Operation(
        records=(ControllerRemoved(broker_id=holder),),
        conditions=(ControllerEpochIs(controller_epoch=image.controller_epoch),),
    )


def hand_over(image: Image, to: BrokerId, timestamp_ms: int) -> Operation:
    """Write ``to`` into /controller, one epoch up: it takes office as soon as it sees itself there.

    Raises:
        CannotTakeOffice: ``to`` is no live broker.
    """
    broker = image.brokers.get(to)
    if broker is None:
        live = ", ".join(map(str, sorted(image.brokers))) or "none"
        raise CannotTakeOffice(f"broker {to} is not registered; live brokers: {live}")
    claim = ControllerClaim(
        broker_id=to,
        session_id=broker.registration.session_id,
        timestamp_ms=timestamp_ms,
        controller_epoch=ControllerEpoch(image.controller_epoch + 1),
    )
    # The claim itself is refused if anything changed since: its epoch would not follow.
    if image.controller is None:
        return Operation(records=(claim,))
    return Operation(records=(ControllerRemoved(broker_id=NO_BROKER), claim))
