"""The identity of a broker process in the cluster: its id, its incarnation and its broker epoch."""

from quorate.common.types import BrokerEpoch, BrokerId


class BrokerIdentity:
    """The identity of one broker process.

    It is created before every other part of a broker. Everything that signs a request, or compares
    a request with this broker's own registration, holds it. Only the registrar changes the epoch.
    """

    __slots__ = ("broker_id", "epoch", "incarnation_id")

    def __init__(self, broker_id: BrokerId, incarnation_id: bytes) -> None:
        self.broker_id = broker_id
        self.incarnation_id = incarnation_id
        """Random bytes, ``ID_BYTES`` of them. They are new at every start of a process."""
        self.epoch: BrokerEpoch | None = None
        """The metadata offset of the registration, or None while this broker is not registered."""

    def register(self, epoch: BrokerEpoch) -> None:
        """Store the epoch that the quorum gave to the registration of this process."""
        self.epoch = epoch

    def unregister(self) -> None:
        """Forget the epoch, because the session of the registration is lost (B2)."""
        self.epoch = None
