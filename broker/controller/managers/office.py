"""Under what authority a decision is made: every write of a controller carries it (E3)."""

from typing import NamedTuple

from metadata_log.records import ControllerEpochIs, Operation, Record
from metadata_log.types import BrokerId, ControllerEpoch


class Office(NamedTuple):
    """One tenure of one controller."""

    controller_id: BrokerId
    controller_epoch: ControllerEpoch

    def operation(self, *records: Record) -> Operation:
        """``records`` as one operation that holds only while this tenure lasts."""
        held = ControllerEpochIs(controller_epoch=self.controller_epoch)
        return Operation(records=records, conditions=(held,))
