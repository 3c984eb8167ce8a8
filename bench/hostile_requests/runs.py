"""Decides which cases a run sends, and makes the clusters that it sends them to."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bench.hostile_requests.cases import Case, Role, cases_of, in_order
from bench.hostile_requests.good_clients import Sample
from bench.hostile_requests.measure import Arena, Limits, Result, arena
from quorate.broker.kafka.connection.requests import Api

AGAIN: Final = 2


@dataclass(frozen=True)
class Plan:
    """The cases that a run sends, and the size and settings of the cluster that it sends them
    to."""

    seed: int
    sizes: Sequence[str]
    older_sizes: Sequence[str]
    roles: Sequence[Role]
    brokers: int
    connections: int
    together: int
    """The number of connections over which the worst cases of an API are sent again at once; 0:
    none."""
    partitions: int
    at_most: int
    settings: Mapping[str, object]

    def cases(self, api: Api) -> list[Case]:
        """The newest version in all sizes, the older ones in a few."""
        older = range(api.min_version, api.max_version)
        found = list(cases_of(api, versions=[api.max_version], sizes=self.sizes, roles=self.roles))
        if self.older_sizes:
            found += cases_of(api, versions=older, sizes=self.older_sizes, roles=self.roles)
        ordered = in_order(found, self.seed)
        return ordered[: self.at_most] if self.at_most else ordered


class Runs:
    """Runs cases, in another cluster after each that did damage."""

    def __init__(self, plan: Plan, limits: Limits) -> None:
        self._plan = plan
        self._limits = limits
        self.quiet: list[Sample] = []

    def results(self, cases: Sequence[Case], connections: int) -> Iterator[Result]:
        waiting = list(reversed(cases))
        while waiting:
            with arena(
                self._plan.brokers, self._plan.settings, partitions=self._plan.partitions
            ) as one:
                self.quiet += one.quiet()
                yield from self._until_damaged(one, waiting, connections)

    def again_together(self, found: Sequence[Result]) -> Iterator[Result]:
        """Send the slowest and the largest of an API's cases over many connections at once."""
        if self._plan.together > 1 and found:
            slowest = max(found, key=lambda result: result.worst_ms).case
            largest = max(found, key=lambda result: result.peak_mb).case
            worst = {case.id: case for case in (slowest, largest)}
            yield from self.results(list(worst.values()), self._plan.together)

    def _until_damaged(self, one: Arena, waiting: list[Case], connections: int) -> Iterator[Result]:
        while waiting and not one.is_damaged:
            yield self._run(one, waiting.pop(), connections)

    def _run(self, one: Arena, case: Case, connections: int) -> Result:
        """Send it again where the machine may have been slow: the broker's own stalls come back."""
        result = one.run(case, connections)
        for _ in range(AGAIN):
            if not result.exceeds(self._limits) or not result.may_be_noise(self._limits):
                break
            result = min(result, one.run(case, connections), key=lambda each: each.worst_ms)
        return result
