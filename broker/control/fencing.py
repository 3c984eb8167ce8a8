"""Whether a control request may be obeyed: rules 1, 2 and 4 of docs/RULES.md, as one pure unit.

A request can be stale in three ways, and each has its own guard:
- from a deposed controller: its controller epoch is below the highest known (rule 1, E3);
- meant for an earlier incarnation of this broker: made from an image that had not seen this
  registration (rule 2, B2). A *newer* epoch is no fault: another broker registered meanwhile;
- overtaken by a newer one of the same controller: made from an older image (rule 4).
"""

from typing import Final

from metadata_log.types import BrokerEpoch, ControllerEpoch, MetadataOffset
from quorate_proto.v1 import errors_pb2
from quorate_proto.v1.control_pb2 import ControlHeader

UNUSED_EPOCH: Final = -1
"""An epoch field that this level of the protocol does not use."""


class ControlFence:
    """The highest controller epoch known, and the image the last UpdateMetadata was made from."""

    def __init__(self) -> None:
        self.controller_epoch = ControllerEpoch(0)
        self._metadata_offset = MetadataOffset(0)
        self._own_epoch: BrokerEpoch | None = None

    def observe_controller_epoch(self, epoch: ControllerEpoch) -> None:
        """A higher controller epoch was seen, in a request or in the metadata log."""
        self.controller_epoch = max(self.controller_epoch, epoch)

    def check(self, header: ControlHeader, own_epoch: BrokerEpoch | None) -> int:
        """Kafka error code for the request: NONE, STALE_CONTROLLER_EPOCH, STALE_BROKER_EPOCH.

        ``own_epoch`` is this broker's registration, None while it is not known (B2).
        """
        if header.controller_epoch < self.controller_epoch:
            return errors_pb2.STALE_CONTROLLER_EPOCH
        self.observe_controller_epoch(ControllerEpoch(header.controller_epoch))
        if own_epoch is None:
            return errors_pb2.STALE_BROKER_EPOCH
        self._begin_incarnation(own_epoch)
        meant_for = header.max_broker_epoch
        if meant_for == UNUSED_EPOCH:
            meant_for = header.broker_epoch
        if meant_for == UNUSED_EPOCH:
            return errors_pb2.INVALID_REQUEST
        return errors_pb2.STALE_BROKER_EPOCH if meant_for < own_epoch else errors_pb2.NONE

    def admits_metadata(self, offset: MetadataOffset) -> bool:
        """Whether an UpdateMetadata made at ``offset`` is not older than the last; remembers it."""
        if offset < self._metadata_offset:
            return False
        self._metadata_offset = offset
        return True

    def _begin_incarnation(self, own_epoch: BrokerEpoch) -> None:
        """Rule 4: the memory of offsets starts afresh with each incarnation."""
        if self._own_epoch != own_epoch:
            self._own_epoch = own_epoch
            self._metadata_offset = MetadataOffset(0)
