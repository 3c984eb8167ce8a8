"""How a member gets from the partitions that it has to those of its target assignment (KIP-848).

A member first gives up what it is not to keep, then it comes to the epoch of the target assignment
and gets what is free, and at last what others give up later. It is told all this by the answers to
its heartbeats, and no other member has to wait for it.

    STABLE ── it has too much ──▶ UNREVOKED_PARTITIONS ── it has given that up ──▶
    UNRELEASED_PARTITIONS ── others have given up the rest ──▶ STABLE
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from quorate.broker.coordinator.groups.consumer.consumer_member import (
    CurrentAssignment,
    MemberState,
    Owned,
    Partitions,
)
from quorate.common.types import TopicId

_NONE: Final[frozenset[int]] = frozenset()


class ReconciliationTarget(NamedTuple):
    """What a member is to have, and whom else it concerns.

    ``is_free`` returns whether a partition has no owner, or this member. ``is_subscribed`` returns
    whether the member is subscribed to a topic, and the topic exists.
    """

    epoch: int
    partitions: Partitions
    is_subscribed: Callable[[TopicId], bool]
    is_free: Callable[[TopicId, int], bool]


def reconcile(
    current: CurrentAssignment,
    target: ReconciliationTarget,
    claimed: Partitions | None,
    *,
    subscription_changed: bool,
) -> CurrentAssignment:
    """Return the next assignment of a member, or ``current`` itself if it stays as it is.

    ``claimed`` are the partitions that the member says it has, or None if it said nothing.
    """
    match current.state:
        case MemberState.STABLE if current.epoch == target.epoch:
            moves = False
        case MemberState.UNREVOKED_PARTITIONS:
            moves = not _claims(claimed, current.revoking)
        case _:
            moves = True
    if moves:
        return _next(current, target, claimed)
    return _without_unsubscribed(current, target, claimed) if subscription_changed else current


def _next(
    current: CurrentAssignment, target: ReconciliationTarget, claimed: Partitions | None
) -> CurrentAssignment:
    kept: dict[TopicId, dict[int, int]] = {}
    revoked: dict[TopicId, dict[int, int]] = {}
    for topic_id, owned in current.assigned.items():
        wanted = _wanted(target, topic_id)
        _put(kept, topic_id, {p: epoch for p, epoch in owned.items() if p in wanted})
        _put(revoked, topic_id, {p: epoch for p, epoch in owned.items() if p not in wanted})
    if revoked and _claims(claimed, revoked):
        state = MemberState.UNREVOKED_PARTITIONS
        return CurrentAssignment(current.epoch, current.epoch, state, kept, revoked)
    state = MemberState.STABLE
    for topic_id in target.partitions:
        has = kept.get(topic_id, {})
        missing = [p for p in sorted(_wanted(target, topic_id)) if p not in has]
        free = [p for p in missing if target.is_free(topic_id, p)]
        if len(free) < len(missing):
            state = MemberState.UNRELEASED_PARTITIONS
        _put(kept, topic_id, {**has, **dict.fromkeys(free, target.epoch)})
    return CurrentAssignment(target.epoch, current.epoch, state, kept)


def _without_unsubscribed(
    current: CurrentAssignment, target: ReconciliationTarget, claimed: Partitions | None
) -> CurrentAssignment:
    """Take the topics away that the member is no longer subscribed to, before there is a new
    target."""
    kept = {t: owned for t, owned in current.assigned.items() if target.is_subscribed(t)}
    if len(kept) == len(current.assigned):
        return current
    revoked = {topic_id: dict(owned) for topic_id, owned in current.revoking.items()}
    for topic_id, owned in current.assigned.items():
        if topic_id not in kept:
            revoked[topic_id] = {**revoked.get(topic_id, {}), **owned}
    if _claims(claimed, revoked):
        state = MemberState.UNREVOKED_PARTITIONS
        return CurrentAssignment(current.epoch, current.epoch, state, kept, revoked)
    return CurrentAssignment(current.epoch, current.epoch, current.state, kept, current.revoking)


def _wanted(target: ReconciliationTarget, topic_id: TopicId) -> frozenset[int]:
    return target.partitions.get(topic_id, _NONE) if target.is_subscribed(topic_id) else _NONE


def _claims(claimed: Partitions | None, owned: Owned) -> bool:
    """Return whether the member may still have one of these partitions: it says so, or nothing."""
    if claimed is None:
        return True
    return any(not claimed.get(topic_id, _NONE).isdisjoint(owned[topic_id]) for topic_id in owned)


def _put(owned: dict[TopicId, dict[int, int]], topic_id: TopicId, more: dict[int, int]) -> None:
    if more:
        owned[topic_id] = more
