"""Brokers that are registered, and controllers that are active, as the parts of a broker see it."""

from typing import Any

from quorate.broker.common.broker_identity import BrokerIdentity
from quorate.broker.control.active_controller import ActiveControllerSlot
from quorate.common.types import BrokerEpoch, BrokerId


def registered(broker_id: int, epoch: int | None) -> BrokerIdentity:
    """Return the identity of a broker; ``epoch`` is None for one that is not registered."""
    identity = BrokerIdentity(BrokerId(broker_id), f"process {broker_id:8}".encode())
    if epoch is not None:
        identity.register(BrokerEpoch(epoch))
    return identity


def active(controller: Any = None) -> ActiveControllerSlot:  # noqa: ANN401 - any fake will do
    """Return the slot of a broker with this controller, or with none."""
    slot = ActiveControllerSlot()
    if controller is not None:
        slot.fill(controller)
    return slot
