"""Fetch sessions: their owners, their eviction, and the partitions that their owners may read."""

from collections.abc import Iterator
from typing import cast

import pytest

from quorate.broker.kafka.records.fetch_messages import FetchRequest, FetchTopic
from quorate.broker.kafka.records.fetch_session import FetchSession, SessionOwner
from quorate.broker.kafka.records.fetch_session_cache import (
    EVICTION_MS,
    PARTITIONS,
    FetchSessionCache,
)
from quorate.broker.replication.api import FetchOutcome, FetchPartition
from quorate.broker.security.authorizer import Authorizer, AuthorizerSettings, Rights
from quorate.broker.security.principal import ANONYMOUS, KafkaPrincipal
from quorate.common.acl_types import AclOperation, ResourceType
from quorate.common.types import TopicPartition
from quorate.metadata_log.acls import Acls
from quorate.metadata_log.image import Image
from quorate_proto.v1 import errors_pb2
from tests.support.acls import ALL_RIGHTS, NO_AUTHORIZER, acl, log_with
from tests.support.followers import ShownImage

OWNER = SessionOwner(ANONYMOUS, "10.0.0.1")
LARGEST_EPOCH = 2**31 - 1


class Clock:
    now_ms = 1_000_000

    def __call__(self) -> int:
        return self.now_ms


def request(
    *partitions: tuple[str, int], epoch: int = 0, forgotten: tuple[tuple[str, int], ...] = ()
) -> FetchRequest:
    topics: list[FetchTopic] = [
        (topic, None, [FetchPartition(TopicPartition(topic, n), 0, 100)]) for topic, n in partitions
    ]
    return FetchRequest(
        0, 1, 100, 0, 7, epoch, topics, [TopicPartition(*one) for one in forgotten], ""
    )


def opened(sessions: FetchSessionCache, partitions: int = 1) -> FetchSession | None:
    session = sessions.open(OWNER, partitions)
    if session is not None:
        assert session.update(request(*(("t", n) for n in range(partitions)))) == errors_pb2.NONE
    return session


def the(session: FetchSession | None) -> FetchSession:
    assert session is not None
    return session


def reading(topic: str) -> Acls:
    """Rights to read only that topic."""
    return log_with(acl(str(ANONYMOUS), AclOperation.READ, ResourceType.TOPIC, topic)).image.acls


def is_there(sessions: FetchSessionCache, session: FetchSession) -> bool:
    there = session in sessions._by_id.values()
    assert there != session.poll.is_closed
    return there


def test_ids_are_never_those_of_another_session_and_never_zero() -> None:
    ids: Iterator[int] = iter((5, 5, 5, 6))
    sessions = FetchSessionCache(2, Clock(), new_id=lambda: next(ids))
    assert [the(opened(sessions)).id, the(opened(sessions)).id] == [5, 6]
    assert the(opened(FetchSessionCache(1, Clock()))).id > 0


def test_a_session_is_its_owners_alone() -> None:
    sessions = FetchSessionCache(9, Clock())
    session = the(opened(sessions))
    assert sessions.find(session.id, OWNER) is session
    assert sessions.find(session.id, SessionOwner(KafkaPrincipal("eve"), "10.0.0.1")) is None
    assert sessions.find(session.id, SessionOwner(ANONYMOUS, "10.0.0.2")) is None


def test_there_are_no_more_than_slots() -> None:
    sessions = FetchSessionCache(2, Clock())
    kept = [the(opened(sessions)), the(opened(sessions))]
    assert opened(sessions, 50) is None
    assert len(sessions) == 2
    assert all(is_there(sessions, session) for session in kept)
    assert opened(FetchSessionCache(0, Clock())) is None


def test_an_unused_session_makes_room_for_any_other() -> None:
    clock = Clock()
    sessions = FetchSessionCache(2, clock)
    idle, busy = the(opened(sessions, 9)), the(opened(sessions, 9))
    clock.now_ms += EVICTION_MS + 1
    assert sessions.find(busy.id, OWNER) is busy
    assert opened(sessions, 1) is not None
    assert not is_there(sessions, idle)
    assert is_there(sessions, busy)
    assert sessions.evictions == 1


def test_a_settled_session_makes_room_for_a_larger_one_only() -> None:
    clock = Clock()
    sessions = FetchSessionCache(2, clock)
    small, large = the(opened(sessions, 3)), the(opened(sessions, 4))
    clock.now_ms += EVICTION_MS
    for session in (small, large):
        assert sessions.find(session.id, OWNER) is session
    assert opened(sessions, 3) is None
    assert opened(sessions, 4) is not None
    assert not is_there(sessions, small)
    assert is_there(sessions, large)


def test_a_young_session_stays_however_small() -> None:
    clock = Clock()
    sessions = FetchSessionCache(1, clock)
    young = the(opened(sessions, 1))
    clock.now_ms += EVICTION_MS - 1
    assert opened(sessions, 50) is None
    assert is_there(sessions, young)


def test_sessions_whose_connections_must_be_closed_are_forgotten() -> None:
    clock = Clock()
    sessions = FetchSessionCache(9, clock, forget_after_ms=600_000)
    old = the(opened(sessions))
    clock.now_ms += 600_000
    young = the(opened(sessions))
    assert is_there(sessions, old)
    clock.now_ms += 1
    opened(sessions)
    assert not is_there(sessions, old)
    assert is_there(sessions, young)
    assert sessions.evictions == 0


def test_epochs_begin_again_at_one() -> None:
    session = the(opened(FetchSessionCache(1, Clock())))
    session._epoch = LARGEST_EPOCH
    assert session.update(request(epoch=LARGEST_EPOCH)) == errors_pb2.NONE
    assert session.update(request(epoch=0)) == errors_pb2.INVALID_FETCH_SESSION_EPOCH
    assert session.update(request(epoch=1)) == errors_pb2.NONE


def test_a_session_holds_no_more_than_one_request_may_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quorate.broker.kafka.records.fetch_session.MAX_ELEMENTS", 3)
    session = the(opened(FetchSessionCache(1, Clock()), 3))
    more = request(("t", 3), epoch=1)
    assert session.update(more) == errors_pb2.FETCH_SESSION_ID_NOT_FOUND


def test_who_had_no_turn_is_first_and_who_had_one_is_last() -> None:
    session = the(opened(FetchSessionCache(1, Clock()), 4))
    looked_at = list(session.poll.take_news())
    read, starved, clean, failed = looked_at
    found = {
        read: FetchOutcome(high_watermark=5, chunks=(b"x",), size=1),
        starved: FetchOutcome(high_watermark=5),
        clean: FetchOutcome(high_watermark=0),
        failed: FetchOutcome(errors_pb2.OFFSET_OUT_OF_RANGE),
    }
    clean.wake()
    outcomes, all_are_here = session.response_outcomes(found)
    assert [position for position, _ in outcomes] == looked_at
    assert all_are_here
    assert list(session.poll.take_news()) == [starved, failed, clean, read]


def test_what_did_not_change_is_not_told_again() -> None:
    session = the(opened(FetchSessionCache(1, Clock())))
    (position,) = session.poll.take_news()
    for outcome, is_told in (
        (FetchOutcome(high_watermark=0, log_start_offset=0), True),
        (FetchOutcome(high_watermark=0, log_start_offset=0), False),
        (FetchOutcome(high_watermark=0, log_start_offset=3), True),
        (FetchOutcome(high_watermark=9, log_start_offset=3), True),
        (FetchOutcome(high_watermark=9, log_start_offset=3), False),
        (FetchOutcome(errors_pb2.NOT_LEADER_OR_FOLLOWER), True),
        (FetchOutcome(errors_pb2.NOT_LEADER_OR_FOLLOWER), True),
        (FetchOutcome(high_watermark=9, log_start_offset=3), True),
    ):
        assert bool(session.response_outcomes({position: outcome})[0]) == is_told


def test_rights_are_checked_again_when_they_or_the_topics_change() -> None:
    acls = reading("mine")
    authorizer = Authorizer(ShownImage(lambda: Image(acls=acls)), AuthorizerSettings(enabled=True))
    rights = authorizer.rights_of(OWNER)
    session = the(FetchSessionCache(1, Clock()).open(OWNER, 1))
    session.update(request(("mine", 0)))
    assert session.may_all_be_read(authorizer, rights)

    session.update(request(("theirs", 0), epoch=1))
    assert not session.may_all_be_read(authorizer, rights)
    assert not session.may_all_be_read(authorizer, rights), "what was refused is no basis"
    session.update(request(epoch=2, forgotten=(("theirs", 0),)))
    assert session.may_all_be_read(authorizer, rights)

    acls = reading("theirs")
    assert not session.may_all_be_read(authorizer, rights)


def test_without_an_authorizer_nobody_is_asked_twice() -> None:
    session = the(opened(FetchSessionCache(1, Clock())))
    assert session.may_all_be_read(NO_AUTHORIZER, ALL_RIGHTS)
    assert session.may_all_be_read(NO_AUTHORIZER, cast("Rights", None))


def counted(sessions: FetchSessionCache, partitions: int) -> FetchSession | None:
    session = opened(sessions, partitions)
    assert session is None or sessions.has_room_for(session)
    return session


def partitions_in(sessions: FetchSessionCache) -> object:
    (sample,) = (one for one in sessions.samples() if one.family is PARTITIONS)
    return sample.value


def test_the_partitions_of_all_sessions_together_are_limited() -> None:
    clock = Clock()
    sessions = FetchSessionCache(9, clock, partitions_max=5)
    assert counted(sessions, 6) is None
    kept = [the(counted(sessions, 2)), the(counted(sessions, 3))]
    assert counted(sessions, 1) is None
    assert all(is_there(sessions, session) for session in kept)
    clock.now_ms += EVICTION_MS
    assert counted(sessions, 4) is None, "a larger one takes no room from sessions that are used"
    clock.now_ms += 1
    assert sessions.find(kept[0].id, OWNER) is kept[0]
    assert counted(sessions, 4) is None, "the one that is unused is not enough"
    assert not is_there(sessions, kept[1])
    assert counted(sessions, 3) is not None
    assert partitions_in(sessions) == 5
    assert sessions.evictions == 1


def test_a_session_that_grows_counts_with_what_it_has_now() -> None:
    sessions = FetchSessionCache(9, Clock(), partitions_max=3)
    session = the(counted(sessions, 2))
    session.update(request(("u", 0), ("u", 1), epoch=1))
    assert not sessions.has_room_for(session)
    session.update(request(epoch=2, forgotten=(("t", 0),)))
    assert sessions.has_room_for(session)
    assert partitions_in(sessions) == 3
    sessions.close(session)
    sessions.close(session)
    assert partitions_in(sessions) == 0
