"""The ids of deleted topics, so that a deletion can be proven to a broker that missed it (rule 7).

A broker that was away while a topic was deleted still has its logs. It may delete them only if the
quorum knows that the topic was deleted: an id that the quorum does not know may be the only copy of
something. So the image remembers the newest deletions, and forgets the oldest beyond a bound.
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from quorate.common.types import ID_BYTES, MetadataOffset, TopicId

PAGE_TOPICS: Final = 256
"""The number of topics in a full page. A deletion copies the last page, which is 6 KiB at most."""

PAGES_MAX: Final = 200

REMEMBERED_MIN: Final = PAGE_TOPICS * PAGES_MAX
"""The number of newest deletions that are always remembered: 51,200, in 1.2 MiB."""

_OFFSET: Final = struct.Struct(">q")
ENTRY_BYTES: Final = ID_BYTES + _OFFSET.size


class DeletedTopics(NamedTuple):
    """The newest deletions, in order. All pages but the last are full.

    An entry of a page is a topic id and the metadata offset at which the topic was removed.
    """

    pages: tuple[bytes, ...] = ()

    def offset_of(self, topic_id: TopicId) -> MetadataOffset | None:
        """Return the offset at which the topic was removed, or None if that is not remembered."""
        for page in self.pages:
            place = page.find(topic_id)
            while place >= 0:
                if place % ENTRY_BYTES == 0:
                    return MetadataOffset(_OFFSET.unpack_from(page, place + ID_BYTES)[0])
                place = page.find(topic_id, place + 1)
        return None

    def with_topic(self, topic_id: TopicId, offset: MetadataOffset) -> "DeletedTopics":
        """Return these deletions and one more. The oldest page goes once there are too many."""
        entry = topic_id + _OFFSET.pack(offset)
        pages = self.pages
        if pages and len(pages[-1]) < PAGE_TOPICS * ENTRY_BYTES:
            return DeletedTopics((*pages[:-1], pages[-1] + entry))
        return DeletedTopics((*pages[-PAGES_MAX:], entry))

    def entries(self) -> Iterator[tuple[TopicId, MetadataOffset]]:
        """Yield the topics and the offsets at which they were removed, the oldest first."""
        for page in self.pages:
            for place in range(0, len(page), ENTRY_BYTES):
                (offset,) = _OFFSET.unpack_from(page, place + ID_BYTES)
                yield TopicId(page[place : place + ID_BYTES]), MetadataOffset(offset)
