"""A voter as brokers see it that read the metadata log from its oldest state on."""

from collections.abc import AsyncGenerator
from typing import Any

from quorate.common.types import MetadataOffset
from quorate.metadata_log.codec import decode_transaction
from quorate.metadata_log.image import Image
from quorate.metadata_log.snapshot.snapshot import encode_snapshot
from quorate.metadata_log.tree.history import history
from quorate_proto.v1.quorum_pb2 import WatchedTransaction, WatchEvent, WatchRequest
from tests.support.followers import ShownImage
from tests.support.metadata import MetadataLogBuilder


class Voter(ShownImage):
    """Its oldest state is that after the first ``compacted`` transactions; of those, its journal
    still has the ones from ``journal_from`` on.
    """

    cluster_id = "a-cluster"

    def __init__(self, log: MetadataLogBuilder, *, compacted: int = 0, per_event: int = 3) -> None:
        super().__init__(lambda: log.image)
        self.log = log
        self.compacted = compacted
        self.journal_from = 0
        self.asked: list[WatchRequest] = []
        self._per_event = per_event
        self.appears: list[Image] = []
        """Snapshots that come in the middle: the log was compacted meanwhile."""

    @property
    def oldest(self) -> Image:
        image = Image()
        for offset, encoded in self.log.entries[: self.compacted]:
            image = history(image, offset, decode_transaction(encoded))[0]
        return image

    async def status(self) -> Any:  # noqa: ANN401 - nobody asks
        raise NotImplementedError

    async def read_offset(self) -> MetadataOffset:
        """Return an offset with no-ops behind it, one for each time that it was asked."""
        return MetadataOffset(self.log.image.offset + 3)

    # It is a broker's follower as well, which follows this voter.

    async def wait_for(self, offset: MetadataOffset) -> Image:
        assert offset == await self.read_offset()
        return self.log.image

    async def relay_watch(self, request: WatchRequest) -> AsyncGenerator[WatchEvent, None]:
        self.asked.append(request)
        told = [one for one in self.log.entries if one.offset >= request.from_offset]
        if request.from_oldest:
            for event in _snapshot(self.oldest):
                yield event
            told = self.log.entries[self.compacted :]
        elif request.from_offset < self.journal_from:
            for event in _snapshot(self.log.image):
                yield event
            told = []
        for first in range(0, len(told), self._per_event):
            some = told[first : first + self._per_event]
            yield WatchEvent(
                transactions=[WatchedTransaction(offset=at, transaction=of) for at, of in some],
                applied_offset=some[-1].offset,
            )
            for image in self.appears:
                for event in _snapshot(image):
                    yield event
        last = self.log.image.offset
        for _ in range(2):
            yield WatchEvent(applied_offset=last)


def _snapshot(image: Image) -> list[WatchEvent]:
    chunks = [WatchEvent(snapshot_chunk=chunk) for chunk in encode_snapshot(image, 64)]
    return [*chunks, WatchEvent(snapshot_done=True, applied_offset=image.offset)]
