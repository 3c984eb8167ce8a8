"""The changes of a transaction: every record that took effect, with the values before and after it.

It is pure, as ``apply`` is: from image and transaction come the next image and the changes, the
same ones in the same order for every reader. The log holds what was asked for; old values and
results come from applying it to the image before. So a transaction is applied first. Then the
records that took effect are drafted once more, one by one, with a look before and after each.
"""

from collections.abc import Iterator
from itertools import count
from typing import Final, NamedTuple

import msgspec

from quorate.common.types import (
    NO_SESSION,
    BrokerId,
    ControllerEpoch,
    MetadataOffset,
    TopicPartition,
)
from quorate.metadata_log.apply import apply
from quorate.metadata_log.draft import Draft
from quorate.metadata_log.image import Image
from quorate.metadata_log.partitions import Partition
from quorate.metadata_log.paths import CONTROLLER, leader_and_isr_path
from quorate.metadata_log.records import (
    ChangeNote,
    ConfigSet,
    ControllerClaim,
    ControllerEpochIs,
    Operation,
    Record,
    Transaction,
    kind_of,
)
from quorate.metadata_log.rules.table import RULES
from quorate.metadata_log.tree.touched import Place, touched
from quorate.metadata_log.tree.tree import value_at
from quorate.metadata_log.tree.values import leader_and_isr

QUORUM: Final = "quorum"
"""The writer of transactions that no client sent: sessions that expire, voters that join."""

Kinds = frozenset[str]
ALL_KINDS: Final[Kinds] = frozenset()
"""Kinds of record as ``kind_of`` names them; the empty set means all."""

_TOPICS: Final = "/brokers/topics/"
_BROKERS: Final = "/brokers/ids/"
_OF_PARTITIONS: Final = (
    "/admin/partitions_add/",
    "/admin/partitions_remove/",
    "/admin/partitions_reassigned/",
)
_OF_TOPICS: Final = (_TOPICS, "/admin/delete_topics/", "/config/topic/")


class Author(NamedTuple):
    """The writer of an operation, and the one who asked for it."""

    timestamp_ms: int
    """The writer's wall clock, ms since the epoch, or 0 if it did not say."""
    controller_epoch: ControllerEpoch | None
    """The epoch of the controller that wrote it, or None if no controller did."""
    writer: str
    """The description of its session, ``broker 2``; or ``QUORUM``."""
    writer_broker: BrokerId | None
    """The broker that was registered under that session."""
    note: ChangeNote | None
    """The note of who asked for it, or None if the writer acted by itself."""


class KeyChange(NamedTuple):
    """The value at one path, before and after one record."""

    offset: MetadataOffset
    record_index: int
    """The number of the record in its transaction; refused records count."""
    record: Record
    key: str
    """The path as ``quorate metadata ls`` shows it."""
    old: bytes | None
    """The value as JSON, as ``quorate metadata get`` shows it, or None if there was none. A
    partition is shown with its replicas. A topic is shown without them: each of its partitions is a
    change of its own.
    """
    new: bytes | None
    topic: str | None
    """The topic that the change is about, if it is about one."""
    partition: int | None
    leaf_before: Partition | None
    """The leaf of a partition, if the path is that of its leaderAndISR."""
    leaf_after: Partition | None
    broker: BrokerId | None
    """The broker of /brokers/ids/N, or the one that came or went at /controller."""
    author: Author

    @property
    def kind(self) -> str:
        return kind_of(self.record)


def history(
    image: Image, offset: MetadataOffset, transaction: Transaction, kinds: Kinds = ALL_KINDS
) -> tuple[Image, Iterator[KeyChange]]:
    """Return the image after ``transaction``, and its changes.

    The changes are computed when they are read, for a topic has many partitions. A transaction that
    was applied before (a retry), or refused, changed nothing.
    """
    applied = apply(image, offset, transaction)
    if applied.result.offset != offset or not _may_hold(transaction, kinds):
        return applied.image, iter(())
    took_effect = [result.ok for result in applied.result.results]
    return applied.image, _changes(image, applied.image, offset, transaction, took_effect, kinds)


def _may_hold(transaction: Transaction, kinds: Kinds) -> bool:
    return not kinds or any(
        kind_of(record) in kinds
        for operation in transaction.operations
        for record in operation.records
    )


def _changes(
    before: Image,
    after: Image,
    offset: MetadataOffset,
    transaction: Transaction,
    took_effect: list[bool],
    kinds: Kinds,
) -> Iterator[KeyChange]:
    draft = Draft(before)
    draft.begin_transaction(
        by_quorum=transaction.client_id == NO_SESSION and not transaction.from_client
    )
    writer = _writer(before, after, transaction)
    indices = count()
    for operation, effective in zip(transaction.operations, took_effect, strict=True):
        author = _author(writer, transaction, operation)
        for record, index in zip(operation.records, indices, strict=False):
            if not effective:
                continue
            wanted = not kinds or kind_of(record) in kinds
            places = touched(draft, record) if wanted else ()
            looks = [(place, _look(draft, place)) for place in places]
            rule = RULES[type(record)]
            if rule.apply is not None:
                rule.apply(draft, offset, record)
            for place, was in looks:
                now = _look(draft, place)
                if was is not None or now is not None:
                    yield _change(offset, index, record, place, was, now, author)


# --- who changed it ------------------------------------------------------------------------------


def _writer(before: Image, after: Image, transaction: Transaction) -> tuple[str, BrokerId | None]:
    """Return the description of the transaction's session, and the broker registered under it."""
    session_id = transaction.client_id
    if session_id == NO_SESSION:
        return QUORUM, None
    # This very transaction may register the broker, or end the session.
    session = before.sessions.get(session_id) or after.sessions.get(session_id)
    registered = [
        broker_id
        for image in (before, after)
        for broker_id, broker in image.brokers.items()
        if broker.registration.session_id == session_id
    ]
    description = "" if session is None else session.description
    return description, registered[0] if registered else None


def _author(
    writer: tuple[str, BrokerId | None], transaction: Transaction, operation: Operation
) -> Author:
    epoch, note = None, None
    for condition in operation.conditions:
        if isinstance(condition, ControllerEpochIs):
            epoch = condition.controller_epoch
    for record in operation.records:
        if isinstance(record, ControllerClaim):
            epoch = record.controller_epoch
        elif isinstance(record, ChangeNote):
            note = record
    return Author(transaction.timestamp_ms, epoch, *writer, note)


# --- what ---------------------------------------------------------------------------------------

_Look = bytes | Partition | None
"""The value at a place: JSON, or a partition's leaf."""


def _look(draft: Draft, place: Place) -> _Look:
    if isinstance(place, TopicPartition):
        return draft.partition(place)
    if place.startswith(_TOPICS):
        return _topic(draft, place.removeprefix(_TOPICS))
    value = value_at(draft, place)
    return None if value is None else msgspec.json.encode(value)


def _topic(draft: Draft, name: str) -> bytes | None:
    topic = draft.topics.get(name)
    if topic is None:
        return None
    removals = [
        {"first_partition": one.first_partition, "offset": one.offset} for one in topic.removals
    ]
    return msgspec.json.encode(
        {
            "topic_id": topic.topic_id.hex(),
            "num_partitions": len(topic.partitions),
            "leader_epoch_floor": topic.leader_epoch_floor,
            "removals": removals,
            "version": topic.version,
        }
    )


def _change(
    offset: MetadataOffset,
    record_index: int,
    record: Record,
    place: Place,
    was: _Look,
    now: _Look,
    author: Author,
) -> KeyChange:
    key = leader_and_isr_path(place) if isinstance(place, TopicPartition) else place
    topic, partition = _subject(place, record)
    return KeyChange(
        offset,
        record_index,
        record,
        key,
        _leaf_json(was),
        _leaf_json(now),
        topic,
        partition,
        was if isinstance(was, Partition) else None,
        now if isinstance(now, Partition) else None,
        _broker_of(key, now or was),
        author,
    )


def _leaf_json(look: _Look) -> bytes | None:
    if isinstance(look, Partition):
        return msgspec.json.encode({"replicas": look.replicas, **leader_and_isr(look)})
    return look


def _subject(path: Place, record: Record) -> tuple[str | None, int | None]:
    """Return the topic and partition that a path is about."""
    if isinstance(path, TopicPartition):
        return path
    if path.startswith(_OF_PARTITIONS):
        topic, number = path.split("/")[-2:]
        return topic, int(number)
    if isinstance(record, ConfigSet):
        is_topics = record.entity_type == "topic" and record.entity_name
        return (record.entity_name if is_topics else None), None
    if path.startswith(_OF_TOPICS):
        return path.rpartition("/")[2], None
    return None, None


def _broker_of(path: str, look: _Look) -> BrokerId | None:
    if path.startswith(_BROKERS):
        return BrokerId(int(path.removeprefix(_BROKERS)))
    if path == CONTROLLER and isinstance(look, bytes):
        return BrokerId(msgspec.json.decode(look)["brokerid"])
    return None
