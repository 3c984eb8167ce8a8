"""Leaders move and brokers bounce at random under acks=all load: nothing acknowledged is lost."""

import asyncio
import random
from pathlib import Path

import pytest

from quorate.broker.log.batches.record_batch import read_header
from quorate.broker.log.options import Flush
from quorate_proto.v1 import errors_pb2
from tests.support.replica_cluster import ReplicaCluster, batch
from tests.support.waiting import async_let_time_pass

pytestmark = pytest.mark.integration

TOPIC = "orders"
BROKERS = (1, 2, 3)
EVENTS = 25


class Load:
    """Producers that send to whoever leads, and remember what was acknowledged."""

    def __init__(self, cluster: ReplicaCluster) -> None:
        self.cluster = cluster
        self.acknowledged: dict[int, str] = {}
        self.running = True
        self._sent = 0

    async def run(self) -> None:
        while self.running:
            node = self.cluster.nodes.get(self.cluster.partition(TOPIC).leader)
            self._sent += 1
            value = f"record {self._sent:06}"
            if node is not None and node.broker_id in self.cluster.nodes:
                (outcome,) = await node.produce(TOPIC, batch(value), timeout_ms=500)
                if outcome.error_code == errors_pb2.NONE:
                    assert outcome.base_offset not in self.acknowledged, "one offset, two records"
                    self.acknowledged[outcome.base_offset] = value
            await async_let_time_pass(0.001, "others have their turn")


async def move_leader(cluster: ReplicaCluster, chance: random.Random) -> None:
    """Tell the brokers in any order, the deposed leader perhaps much later."""
    isr = sorted(cluster.isr(TOPIC))
    told = [each for each in BROKERS if each in cluster.nodes]
    chance.shuffle(told)
    late = told.pop() if chance.random() < 0.5 else None
    await cluster.elect(TOPIC, chance.choice(isr), isr=isr, tell=told)
    await async_let_time_pass(chance.uniform(0, 0.05), "one is told late")
    if late is not None:
        await cluster.tell(TOPIC, to=[late])


async def bounce(cluster: ReplicaCluster, chance: random.Random) -> None:
    """Stop a broker, lead on without it, start it again."""
    victim = chance.choice(sorted(cluster.nodes))
    survivors = sorted(cluster.isr(TOPIC) - {victim})
    if not survivors:
        return
    await cluster.stop(victim)
    survivors = sorted(cluster.isr(TOPIC) - {victim})
    await cluster.elect(TOPIC, chance.choice(survivors), isr=survivors)
    await async_let_time_pass(chance.uniform(0, 0.05), "it is away for a while")
    await cluster.start(victim)
    await cluster.tell(TOPIC)


@pytest.mark.parametrize("flush", ["os", "sync"])
@pytest.mark.parametrize("seed", [1, 2])
async def test_c12_c15_everything_acknowledged_is_on_every_later_leader(
    tmp_path: Path, flush: Flush, seed: int
) -> None:
    chance = random.Random(seed)
    cluster = ReplicaCluster(tmp_path, flush=flush, min_insync_replicas=2)
    await cluster.start(*BROKERS)
    try:
        await cluster.create_topic(TOPIC, BROKERS)
        load = Load(cluster)
        producers = [asyncio.ensure_future(load.run()) for _ in range(4)]
        for _ in range(EVENTS):
            await async_let_time_pass(chance.uniform(0, 0.05), "events come at any moment")
            await chance.choice([move_leader, move_leader, bounce])(cluster, chance)
        load.running = False
        await asyncio.gather(*producers)
        await cluster.tell(TOPIC)
        await cluster.isr_is(TOPIC, *BROKERS)
        await cluster.settled(TOPIC, *BROKERS)
        leader = cluster.nodes[cluster.partition(TOPIC).leader]
        found = stored(leader.log_bytes(TOPIC))
        assert load.acknowledged, "the load got nothing through"
        lost = {o: v for o, v in load.acknowledged.items() if v.encode() not in found.get(o, b"")}
        assert not lost, f"seed {seed}: {len(lost)} of {len(load.acknowledged)} are lost: {lost}"
    finally:
        await cluster.close()


def stored(log: bytes) -> dict[int, bytes]:
    """Batches by base offset."""
    found: dict[int, bytes] = {}
    position = 0
    while position < len(log):
        header = read_header(memoryview(log)[position:])
        found[header.base_offset] = log[position : position + header.size]
        position += header.size
    return found
