"""The follower's image is the log's, its observers miss nothing, its waiters wake at the offset."""

import asyncio
from collections.abc import AsyncIterator

from quorate.broker.metadata.metadata_follower import (
    OPERATIONS_PER_RUN,
    MetadataFollower,
    changes_between,
)
from quorate.common.types import BrokerId, MetadataOffset
from quorate.metadata_log.codec import decode_transaction
from quorate.metadata_log.image import Changes, Image
from quorate.quorum.client.quorum_client import SnapshotLoaded, TransactionsApplied, WatchEvent
from tests.support.metadata import MetadataLogBuilder


class ScriptedWatch:
    """A quorum whose watch delivers what the test feeds."""

    def __init__(self) -> None:
        self.events: asyncio.Queue[WatchEvent] = asyncio.Queue()

    async def watch(self, from_offset: MetadataOffset) -> AsyncIterator[WatchEvent]:
        while True:
            yield await self.events.get()


def applied_since(log: MetadataLogBuilder, start: int) -> TransactionsApplied:
    found = [(e.offset, decode_transaction(e.transaction)) for e in log.entries[start:]]
    return TransactionsApplied(found, log.image.offset)


async def test_f3_the_image_follows_the_log_and_observers_see_what_changed() -> None:
    quorum = ScriptedWatch()
    follower = MetadataFollower(quorum)
    seen: list[tuple[Image, Changes]] = []
    follower.subscribe(lambda image, changes: seen.append((image, changes)))
    await follower.start()
    log = MetadataLogBuilder(begun=False)
    log.start_broker(1)
    log.elect_controller(1)
    quorum.events.put_nowait(applied_since(log, 0))
    assert await follower.wait_for(log.image.offset) == log.image
    (together,) = seen
    assert together[0] == log.image
    assert together[1].controller
    assert together[1].brokers == {BrokerId(1)}
    log.create_topic("orders", (1,))
    quorum.events.put_nowait(applied_since(log, 3))
    assert await follower.wait_for(log.image.offset) == log.image
    assert not seen[1][1].controller
    assert seen[1][1].topics == {"orders"}
    await follower.close()


async def test_a_long_run_lets_others_have_their_turn() -> None:
    """Else a broker that catches up with the log is silent meanwhile."""
    quorum = ScriptedWatch()
    follower = MetadataFollower(quorum)
    seen: list[int] = []
    follower.subscribe(lambda image, _: seen.append(len(image.topics)))
    await follower.start()
    log = MetadataLogBuilder()
    log.start_broker(1)
    log.elect_controller(1)
    for number in range(2 * OPERATIONS_PER_RUN):
        log.create_topic(f"topic-{number}", (1,))
    applied = applied_since(log, 0)
    quorum.events.put_nowait(applied)
    waiting = asyncio.ensure_future(follower.wait_for(log.image.offset))
    turns = 0
    while not waiting.done():
        await asyncio.sleep(0)
        turns += 1
    assert follower.image == log.image
    assert len(seen) == 3
    assert turns > len(seen)
    await follower.close()


async def test_a_snapshot_replaces_the_image_and_tells_what_differs() -> None:
    quorum = ScriptedWatch()
    follower = MetadataFollower(quorum)
    seen: list[Changes] = []
    await follower.start()
    log = MetadataLogBuilder()
    log.start_broker(1)
    log.start_broker(2)
    log.elect_controller(1)
    log.create_topic("kept", (1,))
    quorum.events.put_nowait(applied_since(log, 0))
    await follower.wait_for(log.image.offset)
    follower.subscribe(lambda image, changes: seen.append(changes))
    log.stop_broker(2)
    log.create_topic("new", (1,))
    quorum.events.put_nowait(SnapshotLoaded(log.image))
    assert await follower.wait_for(log.image.offset) == log.image
    assert seen == [
        changes_between(Image(), Image())._replace(
            brokers=frozenset({BrokerId(2)}), topics=frozenset({"new"}), sessions=seen[0].sessions
        )
    ]
    assert len(seen[0].sessions) == 1
    await follower.close()


async def test_waiting_for_an_offset_of_a_no_op_ends_when_it_is_applied() -> None:
    quorum = ScriptedWatch()
    follower = MetadataFollower(quorum)
    await follower.start()
    waiting = asyncio.ensure_future(follower.wait_for(MetadataOffset(9)))
    quorum.events.put_nowait(TransactionsApplied([], MetadataOffset(8)))
    quorum.events.put_nowait(TransactionsApplied([], MetadataOffset(9)))
    assert (await waiting).offset == 0
    await follower.close()
