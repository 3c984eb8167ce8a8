"""Frames of ``ReadMetadataChanges``: columns that are filled row by row, and sent when full.

Values that rows have in common (authors, kinds of record, replica lists) are written once per frame
and referenced by index. Values that only some rows have (leaderAndISR, configuration keys) name
their row.
"""

from typing import Final

import msgspec

from quorate.common.types import BrokerId, MetadataOffset
from quorate.metadata_log.partitions import Partition
from quorate.metadata_log.records import ConfigSet
from quorate.metadata_log.tree.history import Author, KeyChange
from quorate_proto.v1.admin_pb2 import (
    ConfigKeyChange,
    MetadataAuthor,
    MetadataChanges,
    PartitionLeaves,
)
from quorate_proto.v1.metadata_pb2 import BrokerIds

ROWS_MAX: Final = 2_000
JSON_BYTES_MAX: Final = 256 << 10
"""A frame is sent once it has this many bytes of JSON. Its last row may exceed this, however large
it is."""

_NONE: Final = -1


class ChangeFrame:
    """One frame under construction."""

    def __init__(self) -> None:
        self._frame = MetadataChanges()
        self._authors: dict[Author, int] = {}
        self._kinds: dict[str, int] = {}
        self._before = _Leaves(self._frame.before)
        self._after = _Leaves(self._frame.after)
        self._json_bytes = 0
        self.rows = 0

    @property
    def is_full(self) -> bool:
        return self.rows >= ROWS_MAX or self._json_bytes >= JSON_BYTES_MAX

    def add(self, change: KeyChange) -> None:
        frame, row = self._frame, self.rows
        self.rows += 1
        old, new = change.old or b"", change.new or b""
        self._json_bytes += len(old) + len(new)
        frame.offsets.append(change.offset)
        frame.record_indexes.append(change.record_index)
        frame.record_type_of.append(self._kinds.setdefault(change.kind, len(self._kinds)))
        frame.author_of.append(self._authors.setdefault(change.author, len(self._authors)))
        frame.keys.append(change.key)
        frame.olds.append(old.decode())
        frame.news.append(new.decode())
        frame.topics.append(change.topic or "")
        frame.partitions.append(_NONE if change.partition is None else change.partition)
        frame.brokers.append(_NONE if change.broker is None else change.broker)
        if change.leaf_before is not None:
            self._before.add(row, change.leaf_before)
        if change.leaf_after is not None:
            self._after.add(row, change.leaf_after)
        if isinstance(change.record, ConfigSet):
            frame.configs.append(_config_key(row, change.record, old))

    def finish(self, next_offset: MetadataOffset) -> MetadataChanges:
        """Return the frame. All changes below ``next_offset`` are sent with it."""
        frame = self._frame
        frame.record_types.extend(self._kinds)
        frame.authors.extend(map(_author, self._authors))
        frame.next_offset = next_offset
        return frame


class _Leaves:
    """The columns of partition leaves; each list of brokers is stored once."""

    def __init__(self, columns: PartitionLeaves) -> None:
        self._columns = columns
        self._places: dict[tuple[BrokerId, ...], int] = {}

    def add(self, row: int, leaf: Partition) -> None:
        columns = self._columns
        columns.rows.append(row)
        columns.leaders.append(leaf.leader)
        columns.leader_epochs.append(leaf.leader_epoch)
        columns.replicas.append(self._place(leaf.replicas))
        columns.isrs.append(self._place(leaf.isr))

    def _place(self, brokers: tuple[BrokerId, ...]) -> int:
        place = self._places.get(brokers)
        if place is None:
            place = self._places[brokers] = len(self._places)
            self._columns.lists.append(BrokerIds(ids=brokers))
        return place


def _author(author: Author) -> MetadataAuthor:
    message = MetadataAuthor(
        timestamp_ms=author.timestamp_ms,
        controller_epoch=author.controller_epoch,
        writer=author.writer,
        writer_broker=author.writer_broker,
        forwarded_by=_NONE,
    )
    note = author.note
    if note is not None:
        message.principal = note.principal
        message.client_host = note.client_host
        message.client_id = note.client_id
        message.api = note.api
        message.forwarded_by = note.forwarded_by
    return message


def _config_key(row: int, record: ConfigSet, old: bytes) -> ConfigKeyChange:
    before = msgspec.json.decode(old) if old else {}
    return ConfigKeyChange(
        row=row,
        entity_type=record.entity_type,
        entity_name=record.entity_name,
        key=record.key,
        old=before.get(record.key),
        new=record.value,
    )
