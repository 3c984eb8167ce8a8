"""One run of the cluster's simulator with a consumer group."""

from collections.abc import Callable
from typing import Final

from quorate.common.types import TopicIdPartition
from quorate_proto.v1 import admin_pb2
from tests.sim.cluster.end import End
from tests.sim.cluster.simulation import STEPS, Outcome, Simulation, simulate
from tests.sim.groups.group_checker import GroupChecker
from tests.sim.groups.member import HEARTBEAT_S, OFFSETS, TOPIC, Member
from tests.sim.mutants import Mutant

_PARTITIONS: Final = 4


class GroupSimulation(Simulation):
    """The topics of the group, and that of its coordinator, stay as long as the run."""

    def __init__(self, seed: int, steps: int, echo: Callable[[str], None] | None = None) -> None:
        super().__init__(seed, steps, echo)
        self._has_transactions = False
        draw = self.world.random
        session_ms = draw.choice([1_000, 2_000, 4_000])
        self._config |= {
            "group.consumer.min.session.timeout.ms": 500,
            "group.consumer.session.timeout.ms": session_ms,
            "group.consumer.min.heartbeat.interval.ms": 50,
            "group.consumer.heartbeat.interval.ms": int(HEARTBEAT_S * 1_000),
            "group.consumer.assignment.interval.ms": draw.choice([0, 200]),
        }
        self._rebalance_timeout_ms = 2 * session_ms
        self._members = draw.choice([2, 3, 5])
        self.groups = GroupChecker(self.world, session_ms / 1_000, self._may_lose_offsets)
        self.operator.protected = frozenset({OFFSETS[0], TOPIC})

    @property
    def group_counts(self) -> tuple[int, int]:
        return self.groups.assignments, self.groups.commits

    def start_clients(self) -> None:
        super().start_clients()
        replicas = min(3, self._brokers)
        for name, partitions in ((OFFSETS[0], 1), (TOPIC, _PARTITIONS)):
            self.operator.create_as(
                admin_pb2.NewTopic(
                    name=name, num_partitions=partitions, replication_factor=replicas
                )
            )
        for number in range(self._members):
            member = Member(self.clients, 200 + number, self.groups, self._rebalance_timeout_ms)
            self.groups.members.append(member)
            self.clients.run(member.run())

    def end(self) -> End:
        end = super().end()
        end.more_troubles.append(self._group_trouble)
        return end

    def _may_lose_offsets(self) -> bool:
        configs = self.quorum.image.config("topic", OFFSETS[0])
        return configs.get("unclean.leader.election.enable") == "true"

    def _group_trouble(self) -> str | None:
        image = self.quorum.image
        topic, offsets = image.topics.get(TOPIC), image.topics.get(OFFSETS[0])
        if topic is None or offsets is None:
            return "the topics of the group are not there"
        own = (TopicIdPartition(topic.topic_id, number) for number in range(_PARTITIONS))
        return self.groups.trouble(frozenset(own))


def simulate_groups(
    seed: int,
    *,
    steps: int = STEPS,
    mutant: Mutant | None = None,
    echo: Callable[[str], None] | None = None,
) -> Outcome:
    """Run one seed with a group; see ``simulate``."""
    return simulate(seed, steps=steps, mutant=mutant, echo=echo, kind=GroupSimulation)
