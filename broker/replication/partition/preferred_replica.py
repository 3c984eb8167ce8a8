"""Which replica a consumer should read from, as its leader knows them (KIP-392)."""

from collections.abc import Set

from broker.replication.partition.state import ReplicaState
from metadata_log.types import BrokerId


def preferred_replica(
    leader: ReplicaState, fetch_offset: int, near: Set[BrokerId]
) -> BrokerId | None:
    """The one of ``near`` that is furthest; None: the leader, which is near itself or nobody is.

    Only members of the ISR count: another one may stay behind for ever, and its readers with it.
    And only who has what is to be read.
    """
    if not near or leader.broker_id in near:
        return None
    found = [
        (follower.flushed_offset, follower.caught_up_ms, broker_id)
        for broker_id in leader.isr.committed
        if broker_id in near
        and (follower := leader.followers.get(broker_id)) is not None
        and follower.flushed_offset >= fetch_offset
    ]
    return max(found)[2] if found else None
