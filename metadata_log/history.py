"""What a transaction changed: every record that took effect, with what lay there before and after.

Pure, as ``apply`` is: image and transaction in, the next image and the changes out, the same ones
in the same order at whoever asks. The log holds what was asked for; old values, and what became of
it, come of applying it to the image before. So a transaction is applied, and then what took effect
of it is drafted once more, record by record, with a look before and after each.
"""

from collections.abc import Iterator
from itertools import count
from typing import Final, NamedTuple

import msgspec

from metadata_log.apply import apply
from metadata_log.draft import Draft
from metadata_log.image import Image, Partition
from metadata_log.paths import CONTROLLER, leader_and_isr_path
from metadata_log.records import (
    ChangeNote,
    ConfigSet,
    ControllerClaim,
    ControllerEpochIs,
    Operation,
    Record,
    Transaction,
    kind_of,
)
from metadata_log.rules.table import RULES
from metadata_log.touched import Place, touched
from metadata_log.tree import value_at
from metadata_log.tree_values import leader_and_isr
from metadata_log.types import NO_SESSION, BrokerId, ControllerEpoch, MetadataOffset, TopicPartition

QUORUM: Final = "quorum"
"""The writer of transactions that no client asked for: sessions that expire, voters that join."""

Kinds = frozenset[str]
ALL_KINDS: Final[Kinds] = frozenset()
"""Kinds of record as ``kind_of`` names them; none named: all."""

_TOPICS: Final = "/brokers/topics/"
_BROKERS: Final = "/brokers/ids/"
_OF_PARTITIONS: Final = (
    "/admin/partitions_add/",
    "/admin/partitions_remove/",
    "/admin/partitions_reassigned/",
)
_OF_TOPICS: Final = (_TOPICS, "/admin/delete_topics/", "/config/topic/")


class Author(NamedTuple):
    """Who wrote an operation, and on whose behalf."""

    timestamp_ms: int
    """The writer's wall clock, ms since the epoch; 0: it did not say."""
    controller_epoch: ControllerEpoch | None
    """The epoch of the controller that wrote it; None: it was not a controller."""
    writer: str
    """What its session says of itself, ``broker 2``; or ``QUORUM``."""
    writer_broker: BrokerId | None
    """The broker that was registered under that session."""
    note: ChangeNote | None
    """Who asked for it; None: the writer itself."""


class KeyChange(NamedTuple):
    """One path, before and after one record."""

    offset: MetadataOffset
    record_index: int
    """Of the record in its transaction, refused ones counted."""
    record: Record
    key: str
    """As ``quorate metadata ls`` shows it."""
    old: bytes | None
    """JSON of what lay there, as ``quorate metadata get`` shows it; None: nothing. Of a partition
    with its replicas, of a topic without them: each of its partitions is a change of its own."""
    new: bytes | None
    topic: str | None
    """The topic that it is about, if it is about one."""
    partition: int | None
    leaf_before: Partition | None
    """Of a partition's leaderAndISR."""
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
    """The image after ``transaction``, and what it changed, lazily: a topic has many partitions.

    A transaction that was applied before (a retry), or refused, changed nothing.
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
            RULES[type(record)].apply(draft, offset, record)
            for place, was in looks:
                now = _look(draft, place)
                if was is not None or now is not None:
                    yield _change(offset, index, record, place, was, now, author)


# --- who ----------------------------------------------------------------------------------------


def _writer(before: Image, after: Image, transaction: Transaction) -> tuple[str, BrokerId | None]:
    """What its session says of itself, and the broker registered under it."""
    session_id = transaction.client_id
    if session_id == NO_SESSION:
        return QUORUM, None
    # With this very transaction a broker may register, or a session end.
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
"""What lies at a place: JSON, or a partition's leaf."""


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
    """Topic and partition that a path is about."""
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
