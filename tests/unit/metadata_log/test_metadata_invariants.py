"""What the image asserts of every write, and that who applies it ends when it is broken."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from quorate.broker.metadata.metadata_follower import MetadataFollower
from quorate.common.invariants import BrokenInvariant
from quorate.common.types import (
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    MetadataOffset,
    TopicPartition,
)
from quorate.metadata_log.codec import decode_transaction
from quorate.metadata_log.draft import Draft
from quorate.metadata_log.features import NEWEST_METADATA_VERSION
from quorate.metadata_log.image import METADATA_VERSION, Image
from quorate.metadata_log.partitions import Partition, check_partition
from quorate.quorum.client.quorum_client import SnapshotLoaded, TransactionsApplied
from quorate.quorum.quorum_errors import MetadataUnreadable
from tests.support.metadata import MetadataLogBuilder

TP = TopicPartition("orders", 0)
BEFORE = Partition(
    replicas=(BrokerId(1), BrokerId(2)),
    leader=BrokerId(1),
    leader_epoch=LeaderEpoch(3),
    isr=(BrokerId(1), BrokerId(2)),
    controller_id=BrokerId(1),
    controller_epoch=ControllerEpoch(5),
    version=7,
)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": 7}, "versions grow"),
        ({"version": 6}, "versions grow"),
        ({"leader_epoch": 2}, "leader epochs never fall"),
        ({"leader": 2}, "a leader epoch has one leader"),
        ({"isr": (1, 9)}, "assigned replicas alone"),
        ({"isr": (2,)}, "a leader is in its ISR"),
        ({"controller_epoch": 4}, "controllers of earlier epochs"),
    ],
)
def test_a_leaf_that_must_not_be_is_never_written(changes: dict[str, Any], message: str) -> None:
    after = msgspec.structs.replace(BEFORE, **{"version": 8, **changes})
    with pytest.raises(BrokenInvariant, match=message) as found:
        check_partition(TP, BEFORE, after)
    assert "orders-0" in str(found.value)


def test_what_follows_by_the_rules_is_written() -> None:
    after = msgspec.structs.replace(
        BEFORE, version=8, leader=BrokerId(2), leader_epoch=LeaderEpoch(4), isr=(BrokerId(2),)
    )
    check_partition(TP, BEFORE, after)
    check_partition(TP, None, BEFORE)


def test_epochs_and_ids_of_the_whole_cluster_never_fall() -> None:
    log = MetadataLogBuilder()
    log.start_broker(1)
    log.elect_controller(1)
    draft = Draft(log.image)
    with pytest.raises(BrokenInvariant, match="controller epochs grow"):
        draft.put_controller_epoch(log.image.controller_epoch)
    draft.put_next_producer_id(log.image.next_producer_id + 1_000)
    with pytest.raises(BrokenInvariant, match="given out once"):
        draft.put_next_producer_id(log.image.next_producer_id)


async def test_a_broker_that_cannot_apply_the_log_says_so_to_who_waits_and_to_its_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = MetadataLogBuilder()

    class Watch:
        async def watch(self, from_offset: MetadataOffset) -> AsyncIterator[TransactionsApplied]:
            yield TransactionsApplied(
                [(one.offset, decode_transaction(one.transaction)) for one in log.entries],
                log.image.offset,
            )

    def broken(*_: object) -> None:
        raise BrokenInvariant("metadata of orders-0", "versions grow", written=1)

    log.start_broker(1)
    monkeypatch.setattr("quorate.broker.metadata.metadata_follower.apply_run", broken)
    follower = MetadataFollower(Watch())
    await follower.start()
    with pytest.raises(BrokenInvariant):
        await asyncio.wait_for(follower.wait_for(log.image.offset), 5)
    assert follower.has_failed.is_set()
    assert "versions grow" in str(follower.failure)
    await follower.close()


async def test_b6_a_broker_that_is_too_old_for_the_log_says_so_before_it_takes_an_image() -> None:
    ahead = NEWEST_METADATA_VERSION + 1
    newer = Image(features=Image().features.set(METADATA_VERSION, ahead), offset=MetadataOffset(7))

    class Watch:
        async def watch(self, from_offset: MetadataOffset) -> AsyncIterator[SnapshotLoaded]:
            yield SnapshotLoaded(newer)

    follower = MetadataFollower(Watch())
    await follower.start()
    with pytest.raises(MetadataUnreadable, match=f"metadata_version {ahead}"):
        await asyncio.wait_for(follower.wait_for(newer.offset), 5)
    assert follower.has_failed.is_set()
    assert follower.image.offset == 0
    await follower.close()
