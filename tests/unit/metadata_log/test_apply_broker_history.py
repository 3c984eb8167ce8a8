"""What the image remembers of brokers' log folders and of deleted topics (rules 7 and 8)."""

import pytest

from quorate.common.types import BrokerEpoch, BrokerId, TopicId
from quorate.metadata_log.deleted_topics import PAGE_TOPICS, PAGES_MAX, DeletedTopics
from quorate.metadata_log.image import METADATA_VERSION
from quorate.metadata_log.records import (
    BrokerAdmitted,
    FolderMark,
    FolderMarks,
    LostReplica,
    Operation,
    QuorumVoterSet,
    ReplicasLost,
    ResultCode,
    TopicRemoved,
    Transaction,
)
from quorate.metadata_log.rules.broker_history import LOST_REPLICAS_MAX
from tests.support.metadata import (
    MetadataLogBuilder,
    quorum_voter,
    session_of,
    topic_id_of,
)

ONE, TWO = BrokerId(1), BrokerId(2)
LOST = LostReplica(topic_id=topic_id_of("t"), partition=0)


@pytest.fixture
def log() -> MetadataLogBuilder:
    log = MetadataLogBuilder()
    log.start_broker(1)
    log.elect_controller(1)
    log.admit_all()
    return log


def lost(broker_id: int, *replicas: LostReplica, incarnation: int = 0) -> ReplicasLost:
    return ReplicasLost(
        broker_id=BrokerId(broker_id),
        session_id=session_of(broker_id, incarnation),
        replicas=replicas,
    )


def marks(broker_id: int, mark: int, incarnation: int = 0) -> FolderMarks:
    return FolderMarks(
        marks=(FolderMark(session_id=session_of(broker_id, incarnation), mark=mark),)
    )


# --- incarnations and marks ---------------------------------------------------------------------


def test_the_last_incarnation_outlives_its_session(log: MetadataLogBuilder) -> None:
    epoch = log.start_broker(2).results[0].version
    log.stop_broker(2)
    history = log.image.histories[TWO]
    assert (history.incarnation_id, history.epoch) == (b"process   2    0", epoch)
    log.start_broker(2, incarnation=1)
    assert log.image.histories[TWO].incarnation_id == b"process   2    1"


def test_a_mark_never_falls_within_an_incarnation_and_ends_with_it(
    log: MetadataLogBuilder,
) -> None:
    log.start_broker(2)
    for told, known in ((5, 5), (3, 5), (9, 9)):
        log.write(marks(2, told))
        assert log.image.histories[TWO].mark == known
    log.register_again(2)
    assert log.image.histories[TWO].mark == 9
    log.stop_broker(2)
    log.write(marks(2, 50))  # The session is closed.
    assert log.image.histories[TWO].mark == 9
    log.start_broker(2, incarnation=1)
    assert log.image.histories[TWO].mark == 0


def test_only_the_quorum_notes_marks(log: MetadataLogBuilder) -> None:
    by_client = Transaction(operations=(Operation(records=(marks(1, 5),)),), from_client=True)
    (result,) = log.apply(by_client).result.results
    assert result.code is ResultCode.INVALID
    assert log.image.histories[ONE].mark == 0


def test_below_the_level_nothing_is_remembered() -> None:
    log = MetadataLogBuilder(begun=False)
    log.write(QuorumVoterSet(expected_version=0, voters=(quorum_voter(1),), metadata_version=4))
    assert log.image.features[METADATA_VERSION] == 4
    log.start_broker(1)
    log.elect_controller(1)
    log.create_topic("t", (1,))
    log.write_as_controller(TopicRemoved(name="t", topic_id=topic_id_of("t")))
    assert not log.image.histories
    assert log.image.deleted_topics == DeletedTopics()
    assert not log.write(lost(1, LOST)).ok
    assert log.image.brokers[ONE].lost == ()


# --- lost replicas ------------------------------------------------------------------------------


def test_lost_replicas_stay_until_the_broker_is_admitted(log: MetadataLogBuilder) -> None:
    epoch = log.start_broker(2).results[0].version
    assert log.write(lost(2, LOST)).ok
    log.register_again(2)
    assert log.image.brokers[TWO].lost == (LOST,)
    log.write_as_controller(BrokerAdmitted(broker_id=TWO, broker_epoch=BrokerEpoch(epoch)))
    assert log.image.brokers[TWO].lost == ()
    assert log.write(lost(2, LOST)).ok  # Said again, too late: it changes nothing.
    assert log.image.brokers[TWO].lost == ()


def test_nobody_declares_the_replicas_of_another(log: MetadataLogBuilder) -> None:
    log.start_broker(2)
    log.stop_broker(2)
    log.start_broker(2, incarnation=1)
    assert not log.write(lost(2, LOST)).ok
    assert not log.write(lost(3, LOST)).ok
    assert not log.write(
        lost(2, LostReplica(topic_id=TopicId(b"short"), partition=0), incarnation=1)
    ).ok
    many = (LOST,) * (LOST_REPLICAS_MAX + 1)
    assert not log.write(lost(2, *many, incarnation=1)).ok


# --- deleted topics -----------------------------------------------------------------------------


def test_a_deletion_is_remembered_with_its_offset(log: MetadataLogBuilder) -> None:
    log.create_topic("t", (1,))
    removed = log.write_as_controller(TopicRemoved(name="t", topic_id=topic_id_of("t"))).offset
    deleted = log.image.deleted_topics
    assert deleted.offset_of(topic_id_of("t")) == removed
    assert deleted.offset_of(topic_id_of("u")) is None
    assert list(deleted.entries()) == [(topic_id_of("t"), removed)]


def test_only_the_oldest_deletions_are_forgotten() -> None:
    deleted = DeletedTopics()
    count = PAGE_TOPICS * (PAGES_MAX + 1) + 1
    ids = [number.to_bytes(16, "big") for number in range(1, count + 1)]
    for number, topic_id in enumerate(ids):
        deleted = deleted.with_topic(topic_id, number + 1)  # type: ignore[arg-type]
    known = [topic_id for topic_id, _ in deleted.entries()]
    assert len(known) == PAGE_TOPICS * PAGES_MAX + 1
    assert known == ids[PAGE_TOPICS:]
    assert deleted.offset_of(ids[-1]) == count  # type: ignore[arg-type]
    assert deleted.offset_of(ids[0]) is None  # type: ignore[arg-type]


def test_an_id_is_only_found_where_an_entry_begins() -> None:
    first, second = b"a" * 16, b"b" * 16
    deleted = DeletedTopics().with_topic(first, 1).with_topic(second, 2)  # type: ignore[arg-type]
    across = deleted.pages[0][8:24]
    assert deleted.offset_of(across) is None  # type: ignore[arg-type]
