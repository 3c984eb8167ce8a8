"""The list of topics: filtered, sorted and cut to a page by the broker. Pure."""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from quorate.broker.config.internal_topics import INTERNAL_TOPICS
from quorate.broker.console.health.topic_health import TopicHealth

Wanted = Callable[[TopicHealth], bool]

SHOWN: Final[Mapping[str, tuple[str, Wanted]]] = {
    "": ("all", lambda _: True),
    "trouble": ("in trouble", lambda one: not one.is_sound),
    "offline": ("offline", lambda one: one.offline_count > 0),
    "moving": ("being moved", lambda one: one.moving > 0),
    "not-preferred": ("not led by the preferred replica", lambda one: one.not_preferred > 0),
}
"""The topics that can be chosen, by the word of the query."""


class TopicRow(NamedTuple):
    """One topic of the list; rates are per second over all brokers."""

    name: str
    health: TopicHealth
    bytes_in: float
    bytes_out: float


_SORTS: Final[Mapping[str, Callable[[TopicRow], tuple[float, str]]]] = {
    "partitions": lambda one: (-one.health.partitions, one.name),
    "in": lambda one: (-one.bytes_in, one.name),
    "out": lambda one: (-one.bytes_out, one.name),
    "trouble": lambda one: (
        -1000.0 * one.health.offline_count - one.health.under_replicated_count,
        one.name,
    ),
}
SORTS: Final = frozenset({"name", *_SORTS})


def chosen(
    topics: Mapping[str, TopicHealth], part: str, show: str, *, internal: bool
) -> dict[str, TopicHealth]:
    """Return the topics whose name contains ``part`` and that are to be shown."""
    wanted = SHOWN.get(show, SHOWN[""])[1]
    lowered = part.lower()
    return {
        name: health
        for name, health in topics.items()
        if lowered in name.lower()
        and (internal or name not in INTERNAL_TOPICS or not health.is_sound)
        and wanted(health)
    }


def arranged(
    topics: Mapping[str, TopicHealth],
    rates_in: Mapping[str, float],
    rates_out: Mapping[str, float],
    sort: str,
) -> list[TopicRow]:
    """Return the topics in order."""
    rows = [
        TopicRow(name, health, rates_in.get(name, 0.0), rates_out.get(name, 0.0))
        for name, health in topics.items()
    ]
    return sorted(rows, key=_SORTS.get(sort, lambda one: (0.0, one.name)))
