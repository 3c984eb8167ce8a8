"""Which replicas a broker declares lost when it comes up (rule 8), and when its folder is stale."""

from dataclasses import dataclass
from typing import Any, cast

import msgspec
import pytest

from quorate.broker.replication.hosting.hosted_record import HostedRecord
from quorate.broker.replication.hosting.lost_replicas import (
    Loss,
    lost_replicas,
    withheld_replicas,
)
from quorate.broker.replication.hosting.stale_folder import why_stale
from quorate.common.types import (
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    MetadataOffset,
    TopicIdPartition,
)
from quorate.metadata_log.image import BrokerHistory, Image
from quorate.metadata_log.partitions import Topic
from tests.support.metadata import MetadataLogBuilder, topic_id_of

OWN = BrokerId(1)


@dataclass
class Stored:
    assigned_at: int = 5
    lacks_committed: bool = False


def image(*replicas: tuple[int, ...]) -> Image:
    log = MetadataLogBuilder()
    for broker_id in (1, 2):
        log.start_broker(broker_id)
    log.elect_controller(2)
    log.create_topic("orders", *replicas)
    return log.image


def tip(number: int = 0) -> TopicIdPartition:
    return TopicIdPartition(topic_id_of("orders"), number)


def test_rule_8_a_log_that_the_folder_had_is_lost_if_it_is_absent() -> None:
    known = image((1, 2), (2, 1))
    version = known.topics["orders"].version
    lost = lost_replicas(known, OWN, {tip(1): Stored()}, hosted_through=version)
    assert lost == {tip(0): Loss.ABSENT}


def test_rule_8_a_new_partition_without_a_log_is_not_lost() -> None:
    known = image((1, 2))
    version = known.topics["orders"].version
    for hosted_through in (0, version - 1):
        assert not lost_replicas(known, OWN, {}, hosted_through=hosted_through)


def test_rule_8_an_absent_log_of_a_topic_that_grew_since_is_lost() -> None:
    """The topic is newer than the folder's record, and the partition that it lost is not."""
    known = image((1, 2), (1, 2), (1, 2))
    topic = known.topics["orders"]
    as_created, shrunk, moved = topic.partitions
    shrunk = msgspec.structs.replace(shrunk, version=1)
    moved = msgspec.structs.replace(moved, leader_epoch=LeaderEpoch(1))
    grown = msgspec.structs.replace(
        topic,
        partitions=(as_created, shrunk, moved),
        version=MetadataOffset(topic.version + 10),
    )
    assert set(_lost_of(known, grown, topic.version)) == {tip(1), tip(2)}


def _lost_of(known: Image, topic: Topic, hosted_through: int) -> dict[TopicIdPartition, Loss]:
    changed = msgspec.structs.replace(known, topics=known.topics.set(topic.name, topic))
    return lost_replicas(changed, OWN, {}, hosted_through=hosted_through)


def test_rule_8_a_log_below_its_own_promise_is_lost() -> None:
    logs = {tip(0): Stored(lacks_committed=True), tip(1): Stored()}
    lost = lost_replicas(image((1, 2), (1, 2)), OWN, logs, hosted_through=0)
    assert lost == {tip(0): Loss.SHORT}


def test_rule_8_logs_in_a_folder_that_may_have_lost_batches_are_lost() -> None:
    logs = {tip(0): Stored(), tip(1): Stored()}
    known = image((1, 2), (1, 2))
    lost = lost_replicas(known, OWN, logs, hosted_through=0, doubtful={tip(1)})
    assert lost == {tip(1): Loss.DOUBTFUL}


def test_replicas_without_a_log_are_withheld_while_a_folder_is_missing() -> None:
    known = image((1, 2), (1, 2), (2,))
    version = known.topics["orders"].version
    logs = {tip(0): Stored()}
    assert withheld_replicas(known, OWN, logs, hosted_through=version) == {tip(1)}
    assert not withheld_replicas(known, OWN, logs, hosted_through=version - 1), "it is new"


def test_a_replica_outside_the_isr_is_withheld_too() -> None:
    """Its log would be in the way of the one that its folder has."""
    known = image((1, 2))
    topic = known.topics["orders"]
    (leaf,) = topic.partitions
    out = msgspec.structs.replace(leaf, isr=(BrokerId(2),), version=1)
    changed = msgspec.structs.replace(topic, partitions=(out,))
    known = msgspec.structs.replace(known, topics=known.topics.set(topic.name, changed))
    assert withheld_replicas(known, OWN, {}, hosted_through=topic.version) == {tip(0)}


def test_rule_8_nobody_relies_on_a_replica_outside_the_isr() -> None:
    known = image((2,))
    logs = {tip(0): Stored(lacks_committed=True)}
    assert not lost_replicas(known, OWN, logs, hosted_through=known.offset)
    assert not lost_replicas(known, OWN, {}, hosted_through=known.offset)


def test_rule_8_what_an_earlier_start_declared_stays_declared() -> None:
    """The log was created anew meanwhile, and no controller has dealt with the loss."""
    declared = frozenset({tip(0), tip(7)})
    lost = lost_replicas(
        image((1, 2)), OWN, {tip(0): Stored()}, hosted_through=0, declared=declared
    )
    assert lost == {tip(0): Loss.DECLARED}


def test_c14_the_log_of_an_earlier_partition_of_the_number_is_not_this_ones() -> None:
    log = MetadataLogBuilder()
    log.start_broker(1)
    log.elect_controller(1)
    log.create_topic("orders", (1,), (1,))
    former = {tip(0): Stored(log.image.offset), tip(1): Stored(log.image.offset)}
    log.remove_partitions("orders", 1)
    log.complete_removal("orders")
    hosted_through = log.image.offset
    log.add_partitions("orders", (1,))
    log.complete_addition("orders")
    assert not lost_replicas(log.image, OWN, former, hosted_through=hosted_through), "it is new"
    lost = lost_replicas(log.image, OWN, former, hosted_through=log.image.offset)
    assert lost == {tip(1): Loss.ABSENT}


def test_rule_8_a_record_from_before_a_restore_says_nothing() -> None:
    """A topic that was deleted after the backup is back, and its logs are gone rightly."""
    known = image((1, 2))
    restored = msgspec.structs.replace(known, restored_offset=MetadataOffset(1_000))
    assert not lost_replicas(restored, OWN, {}, hosted_through=known.offset)
    assert lost_replicas(restored, OWN, {}, hosted_through=1_000) == {tip(0): Loss.ABSENT}


# --- the folder ---------------------------------------------------------------------------------

FIRST, SECOND, THIRD = b"first", b"second", b"third"


def known_as(incarnation_id: bytes, *, mark: int = 0, epoch: int = 100) -> BrokerHistory:
    return BrokerHistory(incarnation_id, BrokerEpoch(epoch), mark)


def test_rule_8_a_folder_that_does_not_know_the_last_incarnation_is_stale() -> None:
    """An old copy was put back, or another folder is used."""
    for incarnations in ((FIRST, THIRD), (THIRD,), ()):
        why = why_stale(known_as(SECOND), incarnations, 10, 0)
        assert why is not None
        assert SECOND.hex() in why


def test_rule_8_a_folder_below_the_mark_that_the_quorum_has_seen_is_stale() -> None:
    why = why_stale(known_as(SECOND, mark=10), (FIRST, SECOND, THIRD), 9, 0)
    assert why == "its mark is 9, and the quorum has seen 10"


@pytest.mark.parametrize(
    ("history", "incarnations", "mark"),
    [
        (None, (FIRST,), 0),  # A new cluster, or one of the previous release.
        (known_as(FIRST, mark=9), (FIRST, SECOND), 9),  # kill -9 after the last mark was told.
        (known_as(FIRST, mark=9), (FIRST, SECOND), 12),  # kill -9 before it was.
        (known_as(FIRST), (FIRST, SECOND, THIRD), 0),  # The second start never registered.
    ],
)
def test_a_folder_that_knows_all_that_the_quorum_does_is_not_stale(
    history: BrokerHistory | None, incarnations: tuple[bytes, ...], mark: int
) -> None:
    assert why_stale(history, incarnations, mark, 0) is None


def test_rule_8_what_a_restored_quorum_knows_from_before_says_nothing() -> None:
    """The backup knows an older incarnation than the folder does."""
    older = known_as(FIRST, mark=10, epoch=100)
    assert why_stale(older, (SECOND, THIRD), 3, 1_000) is None
    assert why_stale(known_as(FIRST, epoch=1_001), (SECOND, THIRD), 3, 1_000) is not None


# --- the record of what is hosted ---------------------------------------------------------------


class Folder:
    """The part of a store and of the metadata follower that the record uses."""

    def __init__(self) -> None:
        self.logs: dict[TopicIdPartition, Stored] = {}
        self.hosted_through = 0
        self.withheld: frozenset[TopicIdPartition] = frozenset()
        self.writes: list[int] = []

    def note_hosted_through(self, offset: int) -> None:
        self.writes.append(offset)


def test_rule_8_the_record_moves_on_only_once_everything_new_has_a_log() -> None:
    folder = Folder()
    record = HostedRecord(OWN, cast("Any", folder), cast("Any", None))
    log = MetadataLogBuilder()
    for broker_id in (1, 2):
        log.start_broker(broker_id)
    log.elect_controller(2)
    assert record.move_on(log.image)
    log.create_topic("orders", (1, 2), (2,))
    assert not record.move_on(log.image)
    folder.logs[tip(0)] = Stored()
    assert record.move_on(log.image)
    assert folder.writes == [log.image.offset]
    log.create_topic("others", (2,))
    assert record.move_on(log.image)
    assert len(folder.writes) == 1, "nothing of it is assigned here"
    at = MetadataOffset(log.image.offset + 1_000)
    assert record.move_on(msgspec.structs.replace(log.image, restored_offset=at, offset=at))
    assert folder.writes[1:] == [at], "the record moves into the restored history at once"
