"""Which replicas a plan moves, as the throttle configurations of Kafka name them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from quorate.client.errors import RequestFailed
from quorate.client.results import ConfigChange, ConfigResult
from quorate.reassignment.plan import Assignment, by_name

LEADER_RATE: Final = "leader.replication.throttled.rate"
FOLLOWER_RATE: Final = "follower.replication.throttled.rate"
LEADER_REPLICAS: Final = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS: Final = "follower.replication.throttled.replicas"


class ConfigAdmin(Protocol):
    """The part of ``AdminClient`` that changes configurations."""

    def incremental_alter_configs(self, changes: Sequence[ConfigChange]) -> list[ConfigResult]: ...


@dataclass(frozen=True, slots=True)
class Throttled:
    """What is throttled for one plan: brokers, and replicas by topic."""

    brokers: tuple[int, ...]
    leader_replicas: Mapping[str, str]
    """"0:1,0:2": of partition 0, those on brokers 1 and 2, which it is copied from."""
    follower_replicas: Mapping[str, str]
    """As above, for those that it is copied to."""


def throttled(current: Assignment, plan: Assignment) -> Throttled:
    """The replicas that ``plan`` moves from and to."""
    sources: dict[str, list[str]] = {}
    sinks: dict[str, list[str]] = {}
    brokers: set[int] = set()
    for name in sorted(plan, key=by_name):
        old, new = current.get(name, ()), plan[name]
        added = [one for one in new if one not in old]
        brokers.update(old, new)
        if added:
            sources.setdefault(name.topic, []).extend(f"{name.partition}:{one}" for one in old)
            sinks.setdefault(name.topic, []).extend(f"{name.partition}:{one}" for one in added)
    return Throttled(tuple(sorted(brokers)), _joined(sources), _joined(sinks))


def _joined(replicas: Mapping[str, Sequence[str]]) -> dict[str, str]:
    return {topic: ",".join(named) for topic, named in replicas.items()}


def set_throttle(admin: ConfigAdmin, what: Throttled, bytes_per_second: int) -> None:
    """Throttle ``what``; a plan that is carried out later is throttled from its first byte.

    Raises:
        RequestFailed: the first change that was refused.
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


def clear_throttle(admin: ConfigAdmin, brokers: Sequence[int], topics: Sequence[str]) -> None:
    """Remove every throttle of ``brokers`` and ``topics``; one that is not set is no error.

    Raises:
        RequestFailed: the first change that was refused.
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


def _apply(admin: ConfigAdmin, changes: Sequence[ConfigChange]) -> None:
    for result in admin.incremental_alter_configs(changes) if changes else ():
        if not result.ok:
            raise RequestFailed(
                result.error_code, f"{result.entity_type} {result.entity_name}: {result.message}"
            )
