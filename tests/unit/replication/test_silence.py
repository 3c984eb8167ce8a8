"""Silent streams are noticed long before lag, and leaders go on without silent followers."""

import pytest

from quorate.broker.replication.fetching.fetch_session_handler import FetchSessionHandler
from quorate.broker.replication.hosting.peer_silence import (
    LEFT_FOR_MS,
    PAUSE_DIVISOR,
    PeerSilence,
)
from quorate.broker.replication.partition.silent_followers import (
    ALONE_DELAY_MS,
    SETTLE_MS,
    may_go_on_without,
    silence_noticed_ms,
)
from quorate.common.types import BrokerId
from tests.support.broker_replicas import BrokerReplicas
from tests.support.fetch_states import followed
from tests.support.replica import LAG_TIME_MAX_MS, ReplicaUnderTest, ids

LIMIT_MS = 5_000
FETCH_WAIT_MAX_MS = 500
TWO, THREE = BrokerId(2), BrokerId(3)


class Watched:
    """The silence of other brokers, checked every 250 ms as a broker does."""

    def __init__(self, *followers: int) -> None:
        self.silence = PeerSilence()
        self.followers = set(ids(*followers))
        self.now_ms = 0
        for follower in self.followers:
            self.silence.expect_follower(follower, 0)

    def pass_time(self, ms: int, *, heard: int | None = None) -> list[BrokerId]:
        """Let time pass, in which one follower may ask all the time; who became silent."""
        newly: list[BrokerId] = []
        end_ms = self.now_ms + ms
        while self.now_ms < end_ms:
            self.now_ms += 250
            if heard is not None:
                self.silence.hear_follower(BrokerId(heard), self.now_ms)
            newly += self.silence.check(self.now_ms, LIMIT_MS, lambda: self.followers)
        return newly

    @property
    def silent(self) -> dict[BrokerId, int]:
        return self.silence.silent_peers(self.now_ms, LIMIT_MS)


# -- what is noticed ---------------------------------------------------------------------------


def test_a_follower_that_does_not_ask_is_silent_once() -> None:
    watched = Watched(2, 3)
    assert watched.pass_time(LIMIT_MS, heard=2) == []
    assert watched.pass_time(1_000, heard=2) == [THREE]
    assert watched.pass_time(9_000, heard=2) == []
    assert watched.silent == {THREE: 0}


def test_a_follower_that_asks_again_is_heard() -> None:
    watched = Watched(2)
    watched.pass_time(6_000)
    assert watched.silence.hear_follower(TWO, watched.now_ms)
    assert not watched.silence.hear_follower(TWO, watched.now_ms)
    assert watched.silent == {}
    assert watched.pass_time(6_000) == [TWO]


def test_a_follower_of_nothing_that_is_led_here_is_forgotten() -> None:
    watched = Watched(2)
    watched.pass_time(6_000)
    watched.followers.clear()
    watched.pass_time(250)
    assert watched.silent == {}


def test_a_follower_without_a_position_is_excused_until_it_asks_again() -> None:
    watched = Watched(2)
    watched.silence.excuse_follower(TWO)
    assert watched.pass_time(60_000) == []
    watched.silence.hear_follower(TWO, watched.now_ms)
    assert watched.pass_time(6_000) == [TWO]


def test_a_follower_has_the_whole_time_in_a_new_leadership() -> None:
    watched = Watched(2)
    watched.pass_time(4_750)
    watched.silence.expect_follower(TWO, watched.now_ms)
    assert watched.pass_time(LIMIT_MS) == []
    assert watched.pass_time(250) == [TWO]


def test_a_leader_that_owes_an_answer_is_silent_and_one_that_owes_none_is_not() -> None:
    watched = Watched()
    watched.silence.ask_leader(TWO, 0)
    watched.silence.ask_leader(THREE, 0)
    watched.silence.hear_leader(THREE)
    watched.pass_time(3_000)
    watched.silence.ask_leader(TWO, watched.now_ms)
    watched.pass_time(3_000)
    assert watched.silent == {TWO: 0}


def test_a_new_stream_to_the_same_leader_does_not_forget_what_it_owes() -> None:
    """A new controller tells followers of a new epoch, in which the same broker leads."""
    watched = Watched()
    watched.silence.ask_leader(TWO, 0)
    watched.pass_time(4_000)
    watched.silence.leave_leader(TWO, watched.now_ms)
    watched.pass_time(LEFT_FOR_MS)
    assert watched.silent == {}
    watched.silence.ask_leader(TWO, watched.now_ms)
    assert watched.silent == {TWO: 0}
    watched.silence.leave_leader(TWO, watched.now_ms)
    watched.silence.hear_leader(TWO)
    watched.silence.ask_leader(TWO, watched.now_ms)
    assert watched.silent == {}, "it has answered"


def test_a_leader_that_is_asked_again_much_later_has_the_whole_time() -> None:
    watched = Watched()
    watched.silence.ask_leader(TWO, 0)
    watched.silence.leave_leader(TWO, 0)
    watched.pass_time(LEFT_FOR_MS + 250)
    watched.silence.ask_leader(TWO, watched.now_ms)
    watched.pass_time(4_000)
    assert watched.silent == {}


def test_what_a_process_missed_while_it_stood_still_is_no_evidence() -> None:
    watched = Watched(2)
    watched.silence.ask_leader(THREE, 0)
    watched.pass_time(1_000)
    watched.now_ms += LIMIT_MS // PAUSE_DIVISOR + 4_000
    assert watched.pass_time(250) == []
    assert watched.silent == {}
    assert watched.pass_time(6_000) == [TWO]
    assert set(watched.silent) == {TWO, THREE}


# -- what a leader makes of it -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("remaining", "isr", "min_insync", "silent_for_ms", "goes_on"),
    [
        (2, 3, 2, SETTLE_MS - 1, False),
        (2, 3, 2, SETTLE_MS, True),
        (2, 3, 1, SETTLE_MS, True),
        (3, 4, 2, SETTLE_MS, True),
        (2, 3, 3, 60_000, False),
        (1, 3, 2, 60_000, False),
        (1, 3, 1, ALONE_DELAY_MS - 1, False),
        (1, 3, 1, ALONE_DELAY_MS, True),
        (1, 2, 1, ALONE_DELAY_MS - 1, False),
        (2, 4, 2, ALONE_DELAY_MS - 1, False),
        (2, 4, 2, ALONE_DELAY_MS, True),
    ],
)
def test_a_leader_goes_on_with_a_majority_soon_and_with_fewer_later(
    remaining: int, isr: int, min_insync: int, silent_for_ms: int, goes_on: bool
) -> None:
    found = may_go_on_without(
        remaining_count=remaining,
        isr_count=isr,
        min_insync_replicas=min_insync,
        silent_for_ms=silent_for_ms,
    )
    assert found == goes_on


def leader(*, min_insync_replicas: int = 2, silence_max_ms: int = 0) -> ReplicaUnderTest:
    """Leads with everyone at offset 10, at time 0."""
    replica = ReplicaUnderTest(
        min_insync_replicas=min_insync_replicas, silence_max_ms=silence_max_ms
    )
    replica.lead()
    replica.flush(10)
    replica.fetch(2, 10)
    replica.fetch(3, 10)
    return replica


def silence(replica: ReplicaUnderTest, *followers: int) -> None:
    for follower in ids(*followers):
        replica.replica.follower_silent(follower, replica.now_ms)


def test_a_silent_follower_leaves_soon_and_acknowledgements_go_on() -> None:
    replica = leader()
    replica.flush(11)
    replica.fetch(2, 11)
    silence(replica, 3)
    replica.tick_at(SETTLE_MS)
    assert replica.proposed == (1, 2)
    replica.commit_isr()
    assert (replica.isr, replica.high_watermark) == ((1, 2), 11)


def test_a_silent_follower_of_an_idle_partition_does_not_come_back_by_itself() -> None:
    replica = leader()
    silence(replica, 3)
    replica.tick_at(SETTLE_MS)
    replica.commit_isr()
    replica.tick_at(60_000)
    replica.fetch(2, 10)
    assert len(replica.proposals) == 1
    assert replica.isr == (1, 2)


def test_a_follower_that_is_heard_again_rejoins_with_its_next_position() -> None:
    replica = leader()
    silence(replica, 3)
    replica.tick_at(SETTLE_MS)
    replica.commit_isr()
    replica.replica.follower_heard(THREE)
    replica.fetch(3, 10)
    assert replica.proposed == (1, 2, 3)


def test_a_follower_of_an_idle_partition_that_is_heard_again_rejoins_with_the_next_tick() -> None:
    replica = leader()
    replica.fetch(3, 10)
    silence(replica, 3)
    replica.tick_at(SETTLE_MS)
    replica.commit_isr()
    replica.replica.follower_heard(THREE)
    replica.tick_at(SETTLE_MS + 1_000)
    assert replica.proposed == (1, 2, 3)


def test_a_leader_that_hears_nobody_keeps_an_isr_that_others_can_lead() -> None:
    """Also for longer than the lag time: whoever it removed could not lead in its place."""
    replica = leader()
    replica.flush(11)
    silence(replica, 2, 3)
    replica.tick_at(10 * LAG_TIME_MAX_MS)
    replica.tick_at(10 * ALONE_DELAY_MS)
    assert not replica.proposals
    assert not replica.replica.is_at_rest(replica.now_ms)


def test_a_leader_that_is_cut_off_does_not_find_lag_before_silence() -> None:
    """Else a short replica.lag.time.max.ms would leave an ISR in which nobody else can lead."""
    replica = leader(silence_max_ms=LIMIT_MS)
    replica.flush(11)
    replica.tick_at(LIMIT_MS)
    assert not replica.proposals
    silence(replica, 2, 3)
    replica.tick_at(silence_noticed_ms(LIMIT_MS) + 1)
    assert not replica.proposals
    replica.replica.follower_heard(TWO)
    replica.tick_at(replica.now_ms + 1)
    assert replica.proposed == (1, 3), "heard, and it lags"


def test_lag_that_leaves_enough_replicas_does_not_wait_for_silence() -> None:
    replica = leader(silence_max_ms=LIMIT_MS)
    replica.flush(11)
    replica.fetch(2, 11)
    replica.tick_at(LAG_TIME_MAX_MS + 1)
    assert replica.proposed == (1, 2)


def test_followers_that_are_cut_off_together_are_judged_together() -> None:
    """Else the first one that is found silent would leave an ISR in which it could lead."""
    replica = leader()
    silence(replica, 2)
    replica.tick_at(SETTLE_MS - 250)
    silence(replica, 3)
    replica.tick_at(SETTLE_MS)
    replica.tick_at(10 * ALONE_DELAY_MS)
    assert not replica.proposals


def test_a_leader_that_suffices_alone_waits_for_the_controller_first() -> None:
    replica = leader(min_insync_replicas=1)
    silence(replica, 2, 3)
    replica.tick_at(ALONE_DELAY_MS - 1)
    assert not replica.proposals
    replica.tick_at(ALONE_DELAY_MS)
    assert replica.proposed == (1,)


def test_a_leader_in_a_new_epoch_counts_silence_anew() -> None:
    replica = leader()
    silence(replica, 3)
    replica.lead(epoch=1, version=5)
    assert not replica.replica.followers[THREE].is_silent


# -- streams and partitions --------------------------------------------------------------------


async def pass_time(broker: BrokerReplicas, ms: int) -> None:
    end_ms = broker.now_ms + ms
    while broker.now_ms < end_ms:
        broker.now_ms += 250
        broker.manager.table.notice_silence()


async def test_every_frame_of_a_follower_is_heard_for_all_its_partitions(
    broker: BrokerReplicas,
) -> None:
    for topic in ("orders", "bills"):
        await broker.lead(topic, isr=(1, 2, 3))
    streams = {follower: broker.follower(follower) for follower in (2, 3)}
    for stream in streams.values():
        stream.send("orders", ack_only=True)
        stream.send("bills", ack_only=True)
    for _ in range(8):
        await pass_time(broker, 1_000)
        streams[2].send()
    assert set(broker.manager.table.silent_peers()) == {THREE}
    for topic in ("orders", "bills"):
        replica = broker.hosted(topic).replica
        assert replica.isr.maximal == {1, 2, 3}, topic
        assert replica.isr.proposed == {1, 2}, topic
    idle = broker.hosted("bills").replica
    assert idle.isr.in_flight is not None
    idle.isr_committed(idle.isr.in_flight, idle.isr.version + 1, broker.now_ms)
    broker.manager.table.tick()
    streams[3].send("orders", ack_only=True)
    broker.manager.table.tick()
    assert idle.isr.proposed == {1, 2, 3}, "no position of it comes again"
    assert not broker.manager.table.silent_peers()
    assert not any(f.is_silent for f in broker.hosted("bills").replica.followers.values())


async def test_a_leadership_that_begins_while_a_follower_is_silent_knows(
    broker: BrokerReplicas,
) -> None:
    await broker.lead("orders", isr=(1, 2))
    await pass_time(broker, 6_000)
    await broker.lead("bills", isr=(1, 2, 3))
    followers = broker.hosted("bills").replica.followers
    assert {b: f.is_silent for b, f in followers.items()} == {TWO: True, THREE: True}
    await broker.lead("carts", isr=(1, 4), replicas=(1, 4))
    assert not broker.hosted("carts").replica.followers[BrokerId(4)].is_silent


# -- long polls --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("silence", "waits"), [(LIMIT_MS, FETCH_WAIT_MAX_MS), (3 * FETCH_WAIT_MAX_MS - 3, 499)]
)
async def test_a_follower_asks_for_long_polls_that_are_no_silence(
    broker: BrokerReplicas, silence: int, waits: int
) -> None:
    broker.limits.silence = silence
    await broker.command("orders", leader=2, isr=(2,), replicas=(1, 2))
    hosted = broker.hosted("orders")
    handler = hosted.fetcher
    assert isinstance(handler, FetchSessionHandler)
    followed(hosted).begin_fetching()
    handler._on_checked(followed(hosted))
    request = handler.next_request()
    assert request is not None
    assert request.max_wait_ms == waits
