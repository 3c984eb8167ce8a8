"""The replication throttle of a plan: which replicas it moves, and its configs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from quorate.client.admin import AdminClient
from quorate.client.errors import RequestFailed
from quorate.client.results import ConfigChange
from quorate.reassignment.reassignment_plan import Assignment, by_name

LEADER_RATE: Final = "leader.replication.throttled.rate"
FOLLOWER_RATE: Final = "follower.replication.throttled.rate"
LEADER_REPLICAS: Final = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS: Final = "follower.replication.throttled.replicas"


@dataclass(frozen=True, slots=True)
class ThrottledReplicas:
    """The brokers and replicas that are throttled for one plan."""

    brokers: tuple[int, ...]
    leader_replicas: Mapping[str, str]
    """The replicas that are copied from, by topic. "0:1,0:2" names those of partition 0 on brokers
    1 and 2."""
    follower_replicas: Mapping[str, str]
    """The replicas that are copied to, by topic, in the same form."""


def throttled_replicas(current: Assignment, plan: Assignment) -> ThrottledReplicas:
    """Return the replicas that ``plan`` copies from and to."""
    leaders: dict[str, list[str]] = {}
    followers: dict[str, list[str]] = {}
    brokers: set[int] = set()
    for name in sorted(plan, key=by_name):
        old, new = current.get(name, ()), plan[name]
        added = [one for one in new if one not in old]
        brokers.update(old, new)
        if added:
            leaders.setdefault(name.topic, []).extend(f"{name.partition}:{one}" for one in old)
            followers.setdefault(name.topic, []).extend(f"{name.partition}:{one}" for one in added)
    return ThrottledReplicas(tuple(sorted(brokers)), _joined(leaders), _joined(followers))


def _joined(replicas: Mapping[str, Sequence[str]]) -> dict[str, str]:
    return {topic: ",".join(named) for topic, named in replicas.items()}


def set_throttle(admin: AdminClient, what: ThrottledReplicas, bytes_per_second: int) -> None:
    """Set the throttle. A plan that is started afterwards is throttled from its first byte.

    Raises:
        RequestFailed: a change was refused; the error is that of the first one.
    """
    rate = str(bytes_per_second)
    changes = [
        ConfigChange("broker", str(broker_id), {LEADER_RATE: rate, FOLLOWER_RATE: rate})
        for broker_id in what.brokers
    ]
    changes += [
        ConfigChange(
            "topic",
            topic,
            {LEADER_REPLICAS: what.leader_replicas[topic], FOLLOWER_REPLICAS: followers},
        )
        for topic, followers in what.follower_replicas.items()
    ]
    _apply(admin, changes)


def clear_throttle(admin: AdminClient, brokers: Sequence[int], topics: Sequence[str]) -> None:
    """Remove every throttle of ``brokers`` and ``topics``. One that is not set is no error.

    Raises:
        RequestFailed: a change was refused; the error is that of the first one.
    """
    changes = [
        ConfigChange("broker", str(broker_id), {LEADER_RATE: None, FOLLOWER_RATE: None})
        for broker_id in brokers
    ]
    changes += [
        ConfigChange("topic", topic, {LEADER_REPLICAS: None, FOLLOWER_REPLICAS: None})
        for topic in topics
    ]
    _apply(admin, changes)


def _apply(admin: AdminClient, changes: Sequence[ConfigChange]) -> None:
    for result in admin.incremental_alter_configs(changes) if changes else ():
        if not result.ok:
            raise RequestFailed(
                result.error_code, f"{result.entity_type} {result.entity_name}: {result.message}"
            )
