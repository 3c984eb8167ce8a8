"""Whether a leader removes followers from the ISR that are silent: their links or they are broken.

Silence is noticed within seconds, lag only after ``replica.lag.time.max.ms``. But a leader that
hears nobody cannot know whether the others or itself are cut off. So it removes silent followers
only where what is left is worth acknowledging for: a majority of the ISR, and
min.insync.replicas. It waits a moment for the silence of the others to be noticed, too: they are
not heard last at the same time. With less than a majority it first gives the controller time to
move the leadership to a broker that the others hear. Below min.insync.replicas it removes nobody:
nothing could be acknowledged with the rest, and those that are removed could not lead in its place.
For the same reason it waits with a removal for lag that leaves fewer than min.insync.replicas until
it would have noticed silence, also where ``replica.lag.time.max.ms`` is shorter.
"""

from collections.abc import Mapping
from typing import Final

from quorate.broker.replication.partition.follower_progress import FollowerProgress
from quorate.common.types import BrokerId

SETTLE_MS: Final = 1_500
"""The time in which the silence of all members that are cut off together is noticed, and in which
the controller moves the leadership if this broker is the one that is cut off."""

ALONE_DELAY_MS: Final = 3_000
"""The time that a leader which hears only a minority of its ISR gives the controller first."""


def silence_noticed_ms(silence_max_ms: int) -> int:
    """Return the time after which a follower that lags because it is cut off counts as silent.

    Its lag may have begun a little before it was heard last, and silence is looked for now and
    then.
    """
    return silence_max_ms + silence_max_ms // 2


def may_go_on_without(
    *,
    remaining_count: int,
    isr_count: int,
    min_insync_replicas: int,
    silent_for_ms: int,
) -> bool:
    """Return whether the leader goes on with ``remaining_count`` members of its ISR, itself
    included.

    ``silent_for_ms`` is the time since the last of the others was found to be silent.
    """
    if remaining_count < min_insync_replicas:
        return False
    is_majority = 2 * remaining_count > isr_count
    return silent_for_ms >= (SETTLE_MS if is_majority else ALONE_DELAY_MS)


def silent_members_to_keep(
    followers: Mapping[BrokerId, FollowerProgress],
    isr: tuple[BrokerId, ...],
    *,
    remaining_count: int,
    min_insync_replicas: int,
    now_ms: int,
) -> tuple[BrokerId, ...]:
    """Return the silent members of the ISR that stay in it all the same.

    ``remaining_count`` members stay in any case: they are heard, and do not lag.
    """
    silent = [one for one in isr if one in followers and followers[one].is_silent]
    if not silent:
        return ()
    goes_on = may_go_on_without(
        remaining_count=remaining_count,
        isr_count=len(isr),
        min_insync_replicas=min_insync_replicas,
        silent_for_ms=now_ms - max(followers[one].silent_ms for one in silent),
    )
    return () if goes_on else tuple(silent)
