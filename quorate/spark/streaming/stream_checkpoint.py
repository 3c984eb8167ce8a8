"""The offsets of a stream, and their form in Spark's checkpoint.

The JSON is that of Spark's Kafka source, ``{"orders":{"0":23,"1":42}}``, with one more key that
cannot be the name of a topic. This key holds the version of the format and the id of every topic,
so that a topic that was deleted and re-created is recognized as another one.

Spark compares offsets by their text, so equal offsets must have equal text: topics and partitions
are sorted.

**The first batch.** Spark stores the end of a batch before it runs, but it does not store the start
of the first one. A query that is killed in its first batch asks for the initial offsets again, and
by then "latest" is another offset. So the first end offset carries the start of its batch
(`since`), and `batch_start` prefers it to the initial offsets of the restarted query.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from quorate.common.topic_partition import TopicPartition
from quorate.spark.errors import CheckpointError

VERSION = 1
OWN_KEY = "@quorate"
"""The key for the source's own data. No topic has an ``@`` in its name."""

_EXCERPT_LENGTH = 200


@dataclass(frozen=True, slots=True)
class StreamOffsets:
    """The next offset to read of every partition."""

    offsets: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, bytes]
    """The id of every topic in `offsets`."""
    initial: bool = False
    """True for the offsets at which a query begins, before any batch was planned."""
    since: "StreamOffsets | None" = None
    """The start of the first batch, in the offsets at which that batch ends; None in all others."""

    def to_json(self) -> dict[str, Any]:
        """Return the JSON that Spark stores in the checkpoint."""
        own: dict[str, Any] = {
            "version": VERSION,
            "topicIds": {topic: self.topic_ids[topic].hex() for topic in sorted(self.topic_ids)},
        }
        if self.initial:
            own["initial"] = True
        if self.since is not None:
            own["since"] = self.since.to_json()
        by_topic: dict[str, Any] = {}
        for partition in sorted(self.offsets):
            by_partition = by_topic.setdefault(partition.topic, {})
            by_partition[str(partition.partition)] = self.offsets[partition]
        return {**by_topic, OWN_KEY: own}


def parse_offsets(found: object) -> StreamOffsets:
    """Read offsets from a checkpoint.

    Raises:
        CheckpointError: another source or a newer version wrote them; the message says what to do.
    """
    own = found.get(OWN_KEY) if isinstance(found, dict) else None
    if not isinstance(found, dict) or not isinstance(own, dict):
        raise CheckpointError(_foreign(found))
    if own.get("version") != VERSION:
        raise CheckpointError(
            f"the checkpoint's offsets have version {own.get('version')!r}, and this Quorate reads "
            f"version {VERSION}: run the query with the Quorate that wrote them, or give it a new "
            "checkpointLocation"
        )
    try:
        topic_ids = {topic: bytes.fromhex(text) for topic, text in own["topicIds"].items()}
        return StreamOffsets(
            offsets=_partition_offsets(found, topic_ids),
            topic_ids=topic_ids,
            initial=own.get("initial") is True,
            since=parse_offsets(own["since"]) if "since" in own else None,
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(
            f"the checkpoint's offsets are damaged ({error!r}): {_excerpt(found)}. Give the query "
            "a new checkpointLocation"
        ) from None


def batch_start(start: StreamOffsets, end: StreamOffsets) -> StreamOffsets:
    """Return the start of the batch up to ``end``, for which Spark passes ``start``."""
    if not start.initial:
        return start
    if end.initial:
        return end
    return end.since or start


def _partition_offsets(
    found: Mapping[str, Any], topic_ids: Mapping[str, bytes]
) -> dict[TopicPartition, int]:
    offsets: dict[TopicPartition, int] = {}
    for topic, by_partition in found.items():
        if topic == OWN_KEY:
            continue
        if topic not in topic_ids:
            raise ValueError(f"no id of topic {topic!r}")
        for number, offset in by_partition.items():
            if isinstance(offset, bool) or not isinstance(offset, int) or offset < 0:
                raise ValueError(f"{offset!r} is no offset")
            offsets[TopicPartition(topic, int(number))] = offset
    return offsets


def _foreign(found: object) -> str:
    message = f"the checkpoint was not written by format quorate: its offsets are {_excerpt(found)}"
    if isinstance(found, dict) and found and all(isinstance(v, dict) for v in found.values()):
        return (
            f"{message}, which look like those of Spark's Kafka source. Give the query a new "
            "checkpointLocation, and these offsets as startingOffsets if the records are the same"
        )
    return f"{message}. Give the query a checkpointLocation of its own"


def _excerpt(found: object) -> str:
    text = json.dumps(found)
    return text if len(text) <= _EXCERPT_LENGTH else f"{text[:_EXCERPT_LENGTH]}…"
