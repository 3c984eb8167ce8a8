"""Keeps the folder's record of how far everything assigned to this broker has a log (rule 8).

The record is a metadata offset. It moves on soon after topics were created or have grown, once all
that is assigned here of them has a log. So a log that is absent later, and is older than the
record, is lost, and a new partition comes up without delay. Nothing is written while no partition
is new here.
"""

import asyncio
from typing import Final

from quorate.broker.log import LogDirectories
from quorate.broker.metadata.metadata_follower import MetadataFollower
from quorate.broker.replication.hosting.lost_replicas import assigned_in, has_log
from quorate.common.types import BrokerId
from quorate.metadata_log.image import Image

PAUSE_S: Final = 1.0
"""The time between two looks. All partitions that were created between them share one write."""


class HostedRecord:
    """The record of one broker."""

    def __init__(
        self, broker_id: BrokerId, store: LogDirectories, follower: MetadataFollower
    ) -> None:
        self._broker_id = broker_id
        self._store = store
        self._follower = follower
        self._seen = Image().topics
        self._through = store.hosted_through
        """Everything that was assigned up to here has a log. The record on disk may be lower, if
        nothing after it was assigned to this broker."""

    async def run(self) -> None:
        """Move the record on for ever, once the assigned replicas were given logs."""
        while True:
            image = self._follower.image
            if image.topics is not self._seen and self.move_on(image):
                self._seen = image.topics
            await asyncio.sleep(PAUSE_S)

    def move_on(self, image: Image) -> bool:
        """Move the record to ``image`` if everything in it has a log. Return whether it has."""
        since = self._through if self._through >= image.restored_offset else 0
        new = [
            one
            for topic in image.topics.values()
            if topic.version > since
            for one in assigned_in(image, topic, self._broker_id)
        ]
        logs = self._store.logs
        withheld = self._store.withheld
        if not all(has_log(one, logs) or one.tip in withheld for one in new):
            return False
        if new:
            self._store.note_hosted_through(image.offset)
        self._through = image.offset
        return True
