"""One measurement of ``quorate top``: the figures of all brokers at one time."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from quorate.client.results import Metric

Key = tuple[int, str, tuple[tuple[str, str], ...]]
"""The key of a figure: (broker, name, tags)."""


@dataclass(frozen=True, slots=True)
class Look:
    """All figures at one time, in seconds of any clock."""

    at_s: float
    figures: Mapping[Key, float]

    @classmethod
    def of(cls, at_s: float, metrics: Iterable[Metric]) -> "Look":
        return cls(
            at_s, {(m.broker_id, m.name, tuple(sorted(m.tags.items()))): m.value for m in metrics}
        )

    def value(self, broker_id: int, name: str) -> float:
        """Return a figure without tags; 0 if the broker does not report it."""
        return self.figures.get((broker_id, name, ()), 0.0)

    def of_group(self, group: str, name: str) -> float:
        """Return the sum of a figure of a group over all brokers."""
        tags = (("group", group),)
        return sum(
            value
            for (_, other, labels), value in self.figures.items()
            if other == name and labels == tags
        )
