"""The figures of ``quorate top`` from two measurements of a cluster; pure functions."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from quorate.cli.sizes import size
from quorate.cli.top import top_groups, top_share_groups
from quorate.cli.top.measurements import Look
from quorate.cli.top.top_groups import GroupRates, GroupSnapshot
from quorate.cli.top.top_share_groups import ShareGroupRates, ShareGroupSnapshot
from quorate.client.results import ClusterStatus

REQUEST_TIMES: Final = "TotalTimeMs"
"""The metric of requests; it has a Count and a Mean, in seconds since the broker started."""
PRODUCE_TAGS: Final = (("request", "produce"),)

_HEAD = ("broker", "leaders", "replicas", "under-repl", "in", "out", "records", "requests", "p.avg")
_TOPIC_HEAD = ("topic", "in", "out", "records")


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRates:
    """The rates of a broker between two measurements, per second; sizes are in bytes."""

    id: int
    leaders: int
    replicas: int
    under_replicated: int
    bytes_in: float
    bytes_out: float
    records_in: float
    requests: float
    produce_ms: float
    """Mean time of a Produce request in ms between the two measurements; 0 if there was none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRates:
    """The rates of a topic between two measurements over all brokers, per second; sizes are in
    bytes."""

    topic: str
    bytes_in: float
    bytes_out: float
    records_in: float


def broker_rates(status: ClusterStatus, before: Look, after: Look) -> list[BrokerRates]:
    """Return the rates of each live broker."""
    rates = _Rates(before, after)
    return [
        BrokerRates(
            id=broker.id,
            leaders=int(after.value(broker.id, "LeaderCount")),
            replicas=int(after.value(broker.id, "PartitionCount")),
            under_replicated=int(after.value(broker.id, "UnderReplicatedPartitions")),
            bytes_in=rates.of_broker(broker.id, "BytesInPerSec"),
            bytes_out=rates.of_broker(broker.id, "BytesOutPerSec"),
            records_in=rates.of_broker(broker.id, "MessagesInPerSec"),
            requests=rates.of_broker(broker.id, f"{REQUEST_TIMES}.Count"),
            produce_ms=1000 * _mean_between(before, after, broker.id),
        )
        for broker in status.brokers
    ]


def _mean_between(before: Look, after: Look, broker_id: int) -> float:
    """Return the mean time, in seconds, of the Produce requests between two measurements."""
    count, seconds = _produces(after, broker_id)
    count_before, seconds_before = _produces(before, broker_id)
    if count >= count_before:
        count, seconds = count - count_before, seconds - seconds_before
    return max(0.0, seconds) / count if count else 0.0


def _produces(look: Look, broker_id: int) -> tuple[float, float]:
    """Return the number of Produce requests of a broker since its start, and their seconds."""
    count = look.figures.get((broker_id, f"{REQUEST_TIMES}.Count", PRODUCE_TAGS), 0.0)
    return count, count * look.figures.get((broker_id, f"{REQUEST_TIMES}.Mean", PRODUCE_TAGS), 0.0)


def topic_rates(before: Look, after: Look, limit: int) -> list[TopicRates]:
    """Return at most ``limit`` topics, the busiest first; topics without traffic are left out."""
    rates = _Rates(before, after)
    found = [
        TopicRates(
            topic=topic,
            bytes_in=rates.of_topic(topic, "BytesInPerSec"),
            bytes_out=rates.of_topic(topic, "BytesOutPerSec"),
            records_in=rates.of_topic(topic, "MessagesInPerSec"),
        )
        for topic in rates.topics
    ]
    busy = [one for one in found if one.bytes_in or one.bytes_out]
    return sorted(busy, key=lambda one: (-one.bytes_in - one.bytes_out, one.topic))[:limit]


class _Rates:
    """The rates per second, by broker and by topic."""

    def __init__(self, before: Look, after: Look) -> None:
        seconds = max(after.at_s - before.at_s, 1e-9)
        self._by_broker: defaultdict[tuple[int, str], float] = defaultdict(float)
        self._by_topic: defaultdict[tuple[str, str], float] = defaultdict(float)
        self.topics: set[str] = set()
        for key, value in after.figures.items():
            broker_id, name, tags = key
            # A figure that became smaller has started again from zero: its broker was restarted.
            earlier = before.figures.get(key, 0.0)
            rate = (value - earlier if value >= earlier else value) / seconds
            self._by_broker[broker_id, name] += rate
            if (topic := dict(tags).get("topic")) is not None:
                self.topics.add(topic)
                self._by_topic[topic, name] += rate

    def of_broker(self, broker_id: int, name: str) -> float:
        return self._by_broker[broker_id, name]

    def of_topic(self, topic: str, name: str) -> float:
        return self._by_topic[topic, name]


def as_document(
    status: ClusterStatus,
    brokers: Sequence[BrokerRates],
    topics: Sequence[TopicRates],
    groups: Sequence[GroupRates],
    share_groups: Sequence[ShareGroupRates],
) -> dict[str, Any]:
    """Return the measurement as the JSON document that scripts read."""
    return {
        "controller_id": status.controller_id,
        "quorum_leader": status.quorum_leader,
        "offline_partitions": len(status.offline_partitions),
        "under_replicated_partitions": len(status.under_replicated_partitions),
        "brokers": [asdict(one) for one in brokers],
        "topics": [asdict(one) for one in topics],
        "groups": [asdict(one) for one in groups],
        "share_groups": [asdict(one) for one in share_groups],
    }


def lines(
    status: ClusterStatus,
    brokers: Sequence[BrokerRates],
    topics: Sequence[TopicRates],
    groups: Sequence[GroupRates],
    share_groups: Sequence[ShareGroupRates],
    seen: GroupSnapshot,
    shared: ShareGroupSnapshot,
) -> list[str]:
    """Return the lines that are printed for people. There is a table of share groups if there are
    any."""
    controller = "none" if status.controller_id < 0 else f"broker {status.controller_id}"
    leader = f"voter {status.quorum_leader}" if status.quorum_leader else "unknown"
    return [
        f"controller {controller} (epoch {status.controller_epoch})   quorum leader {leader}   "
        f"{status.topics} topics, {status.partitions} partitions",
        f"offline {len(status.offline_partitions)}   "
        f"under-replicated {len(status.under_replicated_partitions)}   "
        f"under min ISR {len(status.under_min_isr_partitions)}",
        "",
        *_table(_HEAD, [_broker_row(one) for one in brokers]),
        "",
        *_table(_TOPIC_HEAD, [_topic_row(one) for one in topics]),
        "",
        *_table(top_groups.HEAD, [top_groups.row(one) for one in groups], words=2),
        *([f"groups: {seen.trouble}"] if seen.trouble else []),
        *(["", *_share_table(share_groups)] if share_groups else []),
        *([f"share groups: {shared.trouble}"] if shared.trouble else []),
        *(f"alert: {alert}" for alert in status.alerts),
    ]


def _broker_row(one: BrokerRates) -> tuple[str, ...]:
    return (
        str(one.id),
        str(one.leaders),
        str(one.replicas),
        str(one.under_replicated),
        f"{size(one.bytes_in)}/s",
        f"{size(one.bytes_out)}/s",
        f"{one.records_in:,.0f}/s",
        f"{one.requests:,.0f}/s",
        f"{one.produce_ms:.1f} ms",
    )


def _topic_row(one: TopicRates) -> tuple[str, ...]:
    rates = (f"{size(one.bytes_in)}/s", f"{size(one.bytes_out)}/s", f"{one.records_in:,.0f}/s")
    return (one.topic, *rates)


def _share_table(groups: Sequence[ShareGroupRates]) -> list[str]:
    return _table(top_share_groups.HEAD, list(map(top_share_groups.row, groups)), words=2)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], words: int = 1) -> list[str]:
    """Format a table: the first ``words`` columns are aligned left, the figures right."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if column < words else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in (head, *rows)
    ]
