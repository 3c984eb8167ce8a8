"""kill -9 of brokers at random, again and again."""

import random
from collections.abc import Callable, Sequence

from quorate.testing import RunningCluster
from tests.support.acked_load import AckedLoad
from tests.support.waiting import let_time_pass


class Kills:
    """Kills one broker after the other, now and then all, and starts them soon after.

    ``between``: what else is to happen before the next. ``stops``: how many of them only stop, so
    that they go on later with what they knew, from 0 to 1.
    """

    def __init__(
        self,
        cluster: RunningCluster,
        seed: int,
        between: Callable[[], None] = lambda: None,
        *,
        stops: float = 0.0,
    ) -> None:
        self._cluster = cluster
        self._stops = stops
        self._chance = random.Random(seed)
        self._between = between
        self.count = 0

    def go_on(self, kills: int, loads: Sequence[AckedLoad]) -> None:
        """Go on until there were ``kills`` more, with acknowledgements between them."""
        beyond = self.count + kills
        while self.count < beyond:
            most = min(beyond - self.count, 3)
            count = min(most, self._chance.choice([1, 1, 1, 1, 2, 3]))
            victims = self._chance.sample(self._cluster.broker_ids, count)
            if self._stops and self._chance.random() < self._stops:
                self._stop(victims)
            else:
                self._kill(victims)
            self.count += count
            self._between()
            for load in loads:
                load.wait_for_more(1, timeout_s=60.0)
            let_time_pass(self._chance.uniform(0.0, 0.6), "kills come at any moment")

    def _kill(self, victims: Sequence[int]) -> None:
        for victim in victims:
            self._cluster.kill_broker(victim)
        away_s = self._chance.choice([0.0, 0.0, 0.3, 1.5])
        let_time_pass(away_s, "a session ends after about a second: some are back before")
        for victim in victims:
            self._cluster.restart_broker(victim, wait=False)

    def _stop(self, victims: Sequence[int]) -> None:
        for victim in victims:
            self._cluster.pause_broker(victim)
        let_time_pass(self._chance.uniform(0.5, 4.0), "some stand still beyond their session")
        for victim in victims:
            self._cluster.resume_broker(victim)
