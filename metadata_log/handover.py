"""Operations that change the holder of /controller by hand; each is complete in itself (E5)."""

from quorate.common.types import NO_BROKER, BrokerId, ControllerEpoch
from quorate.metadata_log.image import Image
from quorate.metadata_log.records import (
    ControllerClaim,
    ControllerEpochIs,
    ControllerRemoved,
    Operation,
)


class IneligibleController(ValueError):
    """The broker cannot become the controller; the message says why."""


def release_controller(image: Image, holder: BrokerId = NO_BROKER) -> Operation:
    """Return the operation that removes /controller. With ``holder`` it removes only
    that broker.
    """
    return Operation(
        records=(ControllerRemoved(broker_id=holder),),
        conditions=(ControllerEpochIs(controller_epoch=image.controller_epoch),),
    )


def hand_over(image: Image, to: BrokerId, timestamp_ms: int) -> Operation:
    """Return the operation that writes ``to`` into /controller with the next controller epoch.

    The broker becomes the active controller as soon as it sees itself there.

    Raises:
        IneligibleController: ``to`` is not a live broker.
    """
    broker = image.brokers.get(to)
    if broker is None:
        live = ", ".join(map(str, sorted(image.brokers))) or "none"
        raise IneligibleController(f"broker {to} is not registered; live brokers: {live}")
    claim = ControllerClaim(
        broker_id=to,
        session_id=broker.registration.session_id,
        timestamp_ms=timestamp_ms,
        controller_epoch=ControllerEpoch(image.controller_epoch + 1),
    )
    # The claim is refused if the controller changed meanwhile, for its epoch would not be the next.
    if image.controller is None:
        return Operation(records=(claim,))
    return Operation(records=(ControllerRemoved(broker_id=NO_BROKER), claim))
