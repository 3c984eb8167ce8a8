"""Groups whose members change their protocol one by one, while coordinators fail: no partition has
two consumers, and all have one at last.
"""

import asyncio
import random

import pytest

from quorate.broker.coordinator.groups.consumer.consumer_group import ConsumerGroup
from tests.support.virtual_time import pass_time
from tests.unit.coordinator.memory_log import Place
from tests.unit.coordinator.mixed_world import (
    ClassicClient,
    ConsumerClient,
    CooperativeClient,
    MixedClient,
    MixedWorld,
)

STEPS = 25


class RandomClients:
    """Clients of both protocols that come, leave, die, and come back with the other protocol."""

    def __init__(self, seed: int, world: MixedWorld) -> None:
        self.random = random.Random(seed)
        self.world = world
        self.classic = self.random.choice((ClassicClient, CooperativeClient))
        self.clients: list[MixedClient] = []
        self.ended: list[MixedClient] = []

    async def step(self) -> None:
        event = self.random.choices(
            (self.come, self.leave, self.die, self.change, self.fail_over, self.wait),
            (5, 2, 1, 5, 2, 4),
        )[0]
        await event()
        await pass_time(self.random.choice((0.0, 0.005, 0.3, 2.5)))
        assert not self.world.faults

    async def come(self) -> None:
        if len(self.clients) < 5:
            instance = f"i{next(self.world.ids)}" if self.random.random() < 0.3 else None
            self.begin(instance)

    def begin(self, instance_id: str | None, other: type[MixedClient] | None = None) -> None:
        kind = other or self.random.choice((self.classic, ConsumerClient))
        self.clients.append(kind(self.world, instance_id))

    def end(self, *, leaves: bool) -> MixedClient | None:
        if not self.clients:
            return None
        client = self.random.choice(self.clients)
        self.clients.remove(client)
        client.stop(leaves=leaves)
        self.ended.append(client)
        return client

    async def leave(self) -> None:
        self.end(leaves=True)

    async def die(self) -> None:
        self.end(leaves=False)

    async def change(self) -> None:
        """A process is restarted with the other protocol. A static member of the classic protocol
        does not say that it leaves."""
        if not self.clients:
            return
        is_static = self.random.random() < 0.5
        client = self.end(leaves=not is_static)
        assert client is not None
        await asyncio.wait([client.task])
        is_classic = isinstance(client, ClassicClient)
        self.begin(client.instance_id, ConsumerClient if is_classic else self.classic)

    async def fail_over(self) -> None:
        await self.world.fail_over()

    async def wait(self) -> None:
        await pass_time(self.random.choice((1, 8)))

    async def settle(self) -> None:
        """Those that died expire, and the others come to an end."""
        if not self.clients:
            self.begin(None)
        await pass_time(180)
        for client in (*self.clients, *self.ended):
            if client.task.done():
                client.task.result()
        assert not self.world.faults
        assert len(self.world.consumers) == self.world.partitions, "everything is consumed"
        group = self.world.coordinator().group("g")
        has_consumers = any(isinstance(each, ConsumerClient) for each in self.clients)
        assert isinstance(group, ConsumerGroup) is has_consumers
        assert group is not None
        assert len(group.members) == len(self.clients)


@pytest.mark.parametrize("seed", range(40))
async def test_a_partition_has_one_consumer_whatever_protocols_members_use(
    seed: int, place: Place
) -> None:
    world = MixedWorld(place, partitions=7)
    await world.fail_over()
    clients = RandomClients(seed, world)
    for _ in range(STEPS):
        await clients.step()
    await clients.settle()
    for client in clients.clients:
        client.stop()
    await asyncio.gather(*(client.task for client in clients.clients))
