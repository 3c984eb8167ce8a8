"""Makes ISRs shrink and grow: brokers are paused, killed and stopped at random."""

import random
from collections import Counter
from collections.abc import Callable
from typing import Final

from quorate.testing import RunningCluster
from tests.support.waiting import let_time_pass

LAG_TIME_MAX_MS: Final = 200
SESSION_TIMEOUT_MS: Final = 3_000
SETTINGS: Final = {
    "replica.lag.time.max.ms": LAG_TIME_MAX_MS,
    "broker.session.timeout.ms": SESSION_TIMEOUT_MS,
    "log.flush": "os",
    "min.insync.replicas": 2,
}


class Flaps:
    """Flaps the ISRs of a cluster of three brokers. What it did is counted by name."""

    def __init__(self, cluster: RunningCluster, seed: int) -> None:
        self.done: Counter[str] = Counter()
        self._cluster = cluster
        self._chance = random.Random(seed)
        self._kinds: list[tuple[Callable[[], None], int]] = [
            (self._pause_one, 50),
            (self._pause_two, 25),
            (self._pause_beyond_its_session, 5),
            (self._kill, 14),
            (self._stop, 6),
        ]

    def pauses(self, count: int) -> None:
        """Pause brokers ``count`` times, for less than their sessions last: leaders stay."""
        for number in range(count):
            (self._pause_two if number % 2 else self._pause_one)()

    def run(self, count: int) -> None:
        """Flap ``count`` times, in all ways."""
        kinds, weights = zip(*self._kinds, strict=True)
        for _ in range(count):
            (flap,) = self._chance.choices(kinds, weights)
            flap()

    def _pause_one(self) -> None:
        self._pause(1, self._chance.uniform(0.4, 1.4))

    def _pause_two(self) -> None:
        self._pause(2, self._chance.uniform(0.4, 1.4))

    def _pause_beyond_its_session(self) -> None:
        self._pause(1, SESSION_TIMEOUT_MS / 1000 + self._chance.uniform(0.5, 1.5))

    def _pause(self, count: int, pause_s: float) -> None:
        paused = self._chance.sample(self._cluster.broker_ids, count)
        self.done[f"{count} paused"] += 1
        for broker_id in paused:
            self._cluster.pause_broker(broker_id)
        try:
            let_time_pass(pause_s, "they lag, and leave ISRs")
        finally:
            for broker_id in paused:
                self._cluster.resume_broker(broker_id)
        self._breathe()

    def _kill(self) -> None:
        victim = self._chance.choice(self._cluster.broker_ids)
        self.done["killed"] += 1
        self._cluster.kill_broker(victim)
        self._breathe()
        self._cluster.restart_broker(victim)
        self._breathe()

    def _stop(self) -> None:
        victim = self._chance.choice(self._cluster.broker_ids)
        self.done["stopped"] += 1
        self._cluster.stop_broker(victim)
        self._cluster.restart_broker(victim)
        self._breathe()

    def _breathe(self) -> None:
        let_time_pass(self._chance.uniform(0.05, 0.6), "ISRs grow again, or are about to")
