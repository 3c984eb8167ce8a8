"""Consumer groups under random events: no partition has two consumers, and all have one at last."""

import random
from itertools import count

import pytest

from quorate.broker.coordinator.groups.consumer.range_assignor import assign_ranges
from quorate.broker.coordinator.groups.consumer.uniform_assignor import assign_uniformly
from quorate_proto.v1 import errors_pb2
from tests.unit.coordinator.consumer_world import Client, World, all_places

NAMES = ("a", "b", "c")
STEPS = 150


class RandomWorld:
    """Clients that come, go, fall silent and change their minds; topics that come and go."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        assign = self.random.choice((assign_uniformly, assign_ranges))
        self.world = World(assign=assign)
        self.clients: list[Client] = []
        self.ids = count()
        self.last_epochs: dict[str, int] = {}
        self.group_epoch = 0
        for name in NAMES[:2]:
            self.world.topics.create(name, self.random.randint(1, 7))

    def some_topics(self) -> frozenset[str]:
        if self.random.random() < 0.5:
            return frozenset(NAMES)
        return frozenset(self.random.sample(NAMES, self.random.randint(1, 3)))

    def step(self) -> None:
        event = self.random.choices(
            (
                self.join,
                self.beat,
                self.beat_losing_the_answer,
                self.do_as_told,
                self.leave,
                self.leave_for_a_while,
                self.fall_silent,
                self.resubscribe,
                self.change_topics,
                self.pass_time,
                self.fail_over,
            ),
            (8, 60, 6, 40, 3, 3, 1, 4, 3, 8, 3),
        )[0]
        event()
        self.check()

    def join(self) -> None:
        if len(self.clients) >= 8:
            return
        number = next(self.ids)
        instance = f"i{number}" if self.random.random() < 0.3 else None
        client = Client(self.world, f"m{number}", self.some_topics(), instance)
        assert client.heartbeat() == 0
        self.clients.append(client)

    def one(self) -> Client | None:
        return self.random.choice(self.clients) if self.clients else None

    def beat(self) -> None:
        client = self.one()
        if client is not None:
            client.heartbeat(full=self.random.random() < 0.1)

    def beat_losing_the_answer(self) -> None:
        client = self.one()
        if client is not None:
            client.heartbeat(lose_answer=True)

    def do_as_told(self) -> None:
        client = self.one()
        if client is not None:
            client.do_as_told()

    def leave(self) -> None:
        client = self.one()
        if client is not None and client.member_id in self.world.group.members:
            client.leave()
            self.clients.remove(client)

    def leave_for_a_while(self) -> None:
        statics = [each for each in self.clients if each.instance_id is not None]
        if not statics:
            return
        client = self.random.choice(statics)
        if client.member_id not in self.world.group.members:
            return
        client.leave(for_a_while=True)
        self.clients.remove(client)
        if self.random.random() < 0.7:
            again = Client(self.world, f"m{next(self.ids)}", client.topics, client.instance_id)
            assert again.heartbeat() == 0
            self.clients.append(again)

    def fall_silent(self) -> None:
        client = self.one()
        if client is not None:
            self.clients.remove(client)
            self.world.pass_time(1)

    def resubscribe(self) -> None:
        client = self.one()
        if client is not None:
            client.topics = self.some_topics()
            client.heartbeat()

    def change_topics(self) -> None:
        topics = self.world.topics
        name = self.random.choice(NAMES)
        topic = topics.topic(name)
        if topic is None:
            topics.create(name, self.random.randint(1, 7))
        elif self.random.random() < 0.5:
            topics.grow(name, topic.partition_count + self.random.randint(1, 3))
        else:
            topics.delete(name)
        self.world.topics_changed()

    def pass_time(self) -> None:
        """Time passes, and nobody who is alive is silent for his session timeout."""
        self.world.pass_time(self.random.randint(1, 20_000))
        for client in self.clients:
            client.heartbeat()

    def fail_over(self) -> None:
        self.world.fail_over()

    def check(self) -> None:
        group = self.world.group
        assert group.epoch >= self.group_epoch, "group epochs never go back"
        self.group_epoch = group.epoch
        assert group.target_epoch <= group.epoch
        seen: dict[object, str] = {}
        for client in self.clients:
            if client.member_id not in group.members:
                continue
            for place in client.has:
                other = seen.setdefault(place, client.member_id)
                assert other == client.member_id, f"{place} has two consumers"
                assert group.members.owner(*place) == client.member_id

    def check_log(self) -> None:
        """The log says what the coordinator knows."""
        group, stored = self.world.group, self.world.from_log()
        assert stored.epoch == group.epoch
        assert stored.target_epoch == group.target_epoch
        assert {m.member_id for m in stored.members} == {m.member_id for m in group.members}
        for member in group.members:
            kept = stored.members.get(member.member_id)
            assert kept is not None
            assert kept.metadata == member.metadata
            assert kept.current == member.current
            assert stored.target_of(member.member_id) == group.target_of(member.member_id)

    def settle(self) -> None:
        """Silent members expire, and the others heartbeat until nothing changes."""
        for _ in range(6):
            self.pass_time()
        for _ in range(4):
            self.world.pass_time(15_000)
            for client in self.clients:
                client.do_as_told()
                assert client.heartbeat() in (0, errors_pb2.UNKNOWN_MEMBER_ID)
        for _ in range(4):
            for client in self.clients:
                client.do_as_told()
                assert client.heartbeat() == 0
            self.check()
        group = self.world.group
        wanted: set[object] = set()
        for client in self.clients:
            wanted |= set(all_places(self.world.topics, client.topics))
        assert {place for client in self.clients for place in client.has} == wanted
        assert group.is_empty or group.state.value == "Stable"


@pytest.mark.parametrize("seed", range(60))
def test_partitions_have_one_consumer_and_everything_is_consumed_at_last(seed: int) -> None:
    world = RandomWorld(seed)
    for _ in range(STEPS):
        world.step()
    world.check_log()
    world.settle()
    world.check_log()
