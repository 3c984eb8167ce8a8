"""Kills of brokers and of an application's workers, one after the other, from a seed."""

import random
import time
from collections.abc import Callable
from typing import Final

from quorate.testing import RunningCluster
from tests.clients.applications.workers import Workers

Say = Callable[[str], None]

_DOWN_S: Final = (0.5, 4.0)
_UP_S: Final = (2.0, 6.0)


def kill_in_turn(
    cluster: RunningCluster, workers: Workers, kills: int, seed: int, say: Say
) -> tuple[int, int]:
    """Kill brokers and workers by kill -9 and start them again; return how many of each."""
    chance = random.Random(seed)
    brokers = killed_workers = 0
    for number in range(1, kills + 1):
        assert not workers.ended(), f"worker {workers.ended()} ended by itself: see its log"
        if chance.random() < 0.5:
            broker_id = chance.choice(cluster.broker_ids)
            say(f"{number}. kill -9 of broker {broker_id}")
            cluster.kill_broker(broker_id)
            time.sleep(chance.uniform(*_DOWN_S))
            cluster.restart_broker(broker_id)
            brokers += 1
        else:
            worker = chance.randrange(len(workers))
            say(f"{number}. kill -9 of worker {worker}")
            workers.kill(worker)
            time.sleep(chance.uniform(*_DOWN_S))
            workers.start_again(worker)
            killed_workers += 1
        time.sleep(chance.uniform(*_UP_S))
    return brokers, killed_workers
