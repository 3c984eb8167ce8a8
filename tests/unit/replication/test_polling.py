"""Polls that go on: news are never missed, and what has none is not looked at."""

import asyncio
import random

import msgspec
import pytest

from quorate.broker.kafka.records.fetch_messages import FetchRequest
from quorate.broker.kafka.records.fetch_session import FetchSession, SessionOwner
from quorate.broker.replication.api import FetchOutcome, FetchParams, FetchPartition
from quorate.broker.replication.hosting.delayed_fetch import DelayedFetch, FetchPosition
from quorate.broker.security.principal import ANONYMOUS
from quorate.common.types import TopicPartition
from quorate_proto.v1 import errors_pb2
from tests.support.broker_replicas import BrokerReplicas
from tests.support.replica_cluster import batch
from tests.unit.replication.test_produce import settle

TOPICS = ("a", "b", "c", "d")


async def append(broker: BrokerReplicas, topic: str) -> None:
    await broker.produce(topic, batch("x"), acks=0)
    broker.store.flush()


def want(topic: str, offset: int = 0) -> FetchPartition:
    return FetchPartition(TopicPartition(topic, 0), offset, 1 << 20)


async def look(
    broker: BrokerReplicas, poll: DelayedFetch, *, max_wait_ms: int = 0, max_bytes: int = 1 << 20
) -> dict[FetchPosition, FetchOutcome]:
    return await broker.manager.poll(
        poll, FetchParams(max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=max_bytes)
    )


@pytest.fixture
async def alone(broker: BrokerReplicas) -> BrokerReplicas:
    """Leads all topics, with nothing in them."""
    for topic in TOPICS:
        await broker.lead(topic, isr=(1,), replicas=(1,))
    return broker


async def test_only_news_are_looked_at(alone: BrokerReplicas) -> None:
    poll = DelayedFetch()
    positions = [poll.add(want(topic)) for topic in TOPICS]
    assert list(await look(alone, poll)) == positions
    assert await look(alone, poll) == {}
    await append(alone, "c")
    assert list(await look(alone, poll)) == [positions[2]]


@pytest.mark.parametrize("what", ["append", "log start", "leadership", "removal", "new topic"])
async def test_all_that_happens_to_a_partition_is_news(alone: BrokerReplicas, what: str) -> None:
    await append(alone, "a")
    poll = DelayedFetch()
    poll.add(want("a", 1))
    await look(alone, poll)
    polling = asyncio.ensure_future(look(alone, poll, max_wait_ms=60_000))
    await settle()
    assert not polling.done()
    match what:
        case "append":
            await append(alone, "a")
        case "log start":
            await alone.delete("a", 1)
        case "leadership":
            await alone.command("a", leader=2, epoch=1, version=1)
        case "removal":
            assert await alone.stop("a", epoch=9, delete=True) == 0
        case "new topic":
            await alone.lead("a", isr=(1,), replicas=(1,), generation=1, metadata_offset=200)
    if what == "log start":
        await settle()
        alone.now_ms += 60_000
        await append(alone, "a")
    (outcome,) = (await polling).values()
    codes = {
        "leadership": errors_pb2.NOT_LEADER_OR_FOLLOWER,
        "removal": errors_pb2.UNKNOWN_TOPIC_OR_PARTITION,
        "new topic": errors_pb2.OFFSET_OUT_OF_RANGE,
    }
    assert outcome.error_code == codes.get(what, errors_pb2.NONE)
    if what == "log start":
        assert outcome.log_start_offset == 1


async def test_what_happens_while_others_are_read_is_not_missed(
    alone: BrokerReplicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The turn is over after the first partition: in the pause it gets a record."""
    poll = DelayedFetch()
    first = poll.add(want("a"))
    poll.add(want("b"))
    turns = alone.manager._reader._turns
    reads = iter((False, True))
    monkeypatch.setattr(type(turns), "is_over", property(lambda _: next(reads, False)))

    async def pause() -> None:
        await append(alone, "a")

    monkeypatch.setattr(turns, "wait", pause)
    found = await look(alone, poll)
    assert found[first].size == 0
    assert list(poll.news) == [first]


async def test_a_cancelled_poll_forgets_no_news(alone: BrokerReplicas) -> None:
    poll = DelayedFetch()
    positions = [poll.add(want(topic)) for topic in TOPICS]
    polling = asyncio.ensure_future(look(alone, poll, max_wait_ms=60_000))
    await settle()
    polling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await polling
    assert list(poll.news) == positions


async def test_a_closed_poll_is_told_nothing_more(alone: BrokerReplicas) -> None:
    poll = DelayedFetch()
    position = poll.add(want("a"))
    polling = asyncio.ensure_future(look(alone, poll, max_wait_ms=60_000))
    await settle()
    poll.close([position])
    await polling
    poll.add(want("b"))
    await look(alone, poll)
    assert not alone.hosted("a").fetch_waiters
    assert not alone.hosted("b").fetch_waiters


class Client:
    """What a consumer knows by the answers of its session."""

    def __init__(self, broker: BrokerReplicas) -> None:
        self._broker = broker
        self.session = FetchSession(1, SessionOwner(ANONYMOUS, "h"), 0)
        self.wants: dict[str, FetchPartition] = {}
        self.told: dict[str, FetchOutcome] = {}
        self._epoch = 0

    async def fetch(
        self, changed: list[FetchPartition], forgotten: list[str], max_bytes: int
    ) -> None:
        for one in changed:
            self.wants[one.tp.topic] = one
        for topic in forgotten:
            self.wants.pop(topic, None)
            self.told.pop(topic, None)
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=max_bytes,
            isolation_level=0,
            session_id=1,
            session_epoch=self._epoch,
            topics=[(one.tp.topic, None, [one]) for one in changed],
            forgotten=[TopicPartition(topic, 0) for topic in forgotten],
            rack="",
        )
        assert self.session.update(request) == errors_pb2.NONE
        self._epoch += 1
        found = await look(self._broker, self.session.poll, max_bytes=max_bytes)
        answered = set()
        for position, outcome in self.session.response_outcomes(found)[0]:
            answered.add(position.want.tp.topic)
            self.told[position.want.tp.topic] = outcome
        for topic in self.told.keys() - answered:
            # What is not named has no records, and is as it was.
            self.told[topic] = msgspec.structs.replace(self.told[topic], chunks=(), size=0)


@pytest.mark.parametrize("seed", range(40))
async def test_a_client_of_a_session_knows_what_it_would_be_told_without(
    alone: BrokerReplicas, seed: int
) -> None:
    """Random histories; only what did not fit into an answer may be told later, and it is."""
    rng = random.Random(seed)
    client = Client(alone)
    epochs = dict.fromkeys(TOPICS, 0)
    for _ in range(40):
        topic = rng.choice(TOPICS)
        match rng.choice(("append", "append", "log start", "leader", "quiet", "tick")):
            case "append" if alone.leads(topic):
                await append(alone, topic)
            case "log start" if alone.leads(topic):
                await alone.delete(topic, rng.randint(0, alone.hosted(topic).log.flushed_offset))
            case "leader":
                epochs[topic] += 1
                leader = rng.choice((1, 1, 2))
                await alone.command(
                    topic,
                    leader=leader,
                    epoch=epochs[topic],
                    version=epochs[topic],
                    isr=(leader,),
                    replicas=(1, 2),
                )
            case _:
                pass
        changed = [want(t, rng.randint(0, 6)) for t in TOPICS if rng.random() < 0.2]
        named = {one.tp.topic for one in changed}
        forgotten = [t for t in TOPICS if t not in named and rng.random() < 0.05]
        await client.fetch(changed, forgotten, rng.choice((1, 1 << 20)))
    for _ in range(len(TOPICS) + 1):
        # One partition with records each, and then it is told no more of it.
        await client.fetch([], [], 1 << 20)
    assert client.told.keys() == client.wants.keys()
    for topic, outcome in client.told.items():
        (expected,) = await alone.manager.fetch(
            [client.wants[topic]], FetchParams(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20)
        )
        assert outcome == expected, topic
