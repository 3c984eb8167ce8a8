"""A member of a consumer group: it heartbeats, commits, leaves, and dies."""

from typing import TYPE_CHECKING, Any, Final

from quorate.broker.coordinator.groups.consumer.consumer_member import JOINING_EPOCH, LEAVING_EPOCH
from quorate.broker.coordinator.groups.consumer.heartbeat_messages import HeartbeatRequest
from quorate.common.types import TopicId, TopicIdPartition
from quorate_proto.v1 import errors_pb2
from tests.sim.cluster.client import Client
from tests.sim.groups.group_checker import GroupChecker

if TYPE_CHECKING:
    from tests.sim.cluster.clients import Clients

GROUP_ID: Final = "g"
OFFSETS: Final = ("__consumer_offsets", 0)
TOPIC: Final = "shared"
HEARTBEAT_S: Final = 0.2

_JOIN_AGAIN: Final = frozenset(
    {
        errors_pb2.UNKNOWN_MEMBER_ID,
        errors_pb2.FENCED_MEMBER_EPOCH,
        errors_pb2.GROUP_ID_NOT_FOUND,
    }
)


class Member(Client):
    """One member after the other, each with an id of its own, one at a time."""

    sees_internal_topics = True

    def __init__(
        self, clients: "Clients", number: int, checker: GroupChecker, rebalance_timeout_ms: int
    ) -> None:
        super().__init__(clients, number)
        self._checker = checker
        self._rebalance_timeout_ms = rebalance_timeout_ms
        self._lives = 0
        self.member_id = ""
        self.owned: dict[TopicIdPartition, int | None] = {}
        """The partitions that it has, each with its position once that is known."""
        self.heard_s = 0.0
        """The time at which it sent the last heartbeat that was answered."""
        self._epoch = JOINING_EPOCH
        self._says_everything = True
        self._begin()

    def _begin(self) -> None:
        """Become another member."""
        self._lives += 1
        self.member_id = f"member-{self.number}-{self._lives}"
        self._join_again()

    def _join_again(self) -> None:
        self.owned = {}
        self._epoch = JOINING_EPOCH
        self._says_everything = True

    async def run(self) -> None:
        """Go on until the end of the run: a group must come to rest with members in it."""
        while True:
            await self.pause(HEARTBEAT_S)
            if OFFSETS not in self.leaders or self.world.chance(0.05):
                await self.look()
            if not self.clients.is_stopping:
                if self.world.chance(0.01):
                    await self._die()
                if self.world.chance(0.01):
                    await self._leave()
                if self.world.chance(0.02):
                    await self.pause(4.0)  # It may be removed, and does not know it.
                await self._work()
            await self._beat()

    async def _die(self) -> None:
        """Be silent for a while, and come back as another member."""
        self._begin()
        await self.pause(self.world.random.choice([0.1, 3.0]))

    async def _leave(self) -> None:
        member_id = self.member_id
        self._begin()
        await self._ask_coordinator(
            "ConsumerHeartbeat",
            (GROUP_ID, tuple(HeartbeatRequest(member_id, LEAVING_EPOCH, "c", "/h"))),
        )

    # -- heartbeats --------------------------------------------------------------------------------

    async def _beat(self) -> None:
        sent_s = self.world.now
        request = (GROUP_ID, tuple(self._heartbeat()))
        answer = await self._ask_coordinator("ConsumerHeartbeat", request)
        if answer is None:
            self._says_everything = True  # The answer may have said what it has now.
            return
        code, epoch, assigned = answer
        self.check_code(code, "ConsumerGroupHeartbeat")
        if code in _JOIN_AGAIN:
            self._join_again()
        elif code == errors_pb2.NONE:
            self.heard_s = sent_s
            self._epoch = epoch
            self._says_everything = False
            if assigned is not None:
                self._take(assigned)
        else:
            await self.look()

    def _heartbeat(self) -> HeartbeatRequest:
        claimed: dict[TopicId, set[int]] = {}
        for tip in self.owned:
            claimed.setdefault(tip.topic_id, set()).add(tip.partition)
        request = HeartbeatRequest(
            self.member_id,
            self._epoch,
            "c",
            "/h",
            claimed={topic_id: frozenset(own) for topic_id, own in claimed.items()},
        )
        if not self._says_everything:
            return request
        names = frozenset({TOPIC})
        return request._replace(topic_names=names, rebalance_timeout_ms=self._rebalance_timeout_ms)

    def _take(self, assigned: dict[TopicId, set[int]]) -> None:
        wanted = {TopicIdPartition(one, number) for one, own in assigned.items() for number in own}
        for tip in sorted(self.owned.keys() - wanted):
            del self.owned[tip]
        for tip in sorted(wanted - self.owned.keys()):
            self._checker.takes(self, tip)
            self.owned[tip] = None

    # -- offsets -----------------------------------------------------------------------------------

    async def _work(self) -> None:
        """Commit the next offset of a partition, from the committed one on."""
        if not self.owned:
            return
        tip = self.world.random.choice(sorted(self.owned))
        position = self.owned[tip]
        if position is None:
            least = self._checker.least(tip)
            answer = await self._ask_coordinator("CommittedOffset", (GROUP_ID, _named(tip)))
            if answer is not None and answer[0] == errors_pb2.NONE:
                self._checker.fetched(tip, answer[1], least)
                if tip in self.owned:
                    self.owned[tip] = answer[1]
            return
        request = (GROUP_ID, self.member_id, self._epoch, _named(tip), position + 1)
        answer = await self._ask_coordinator("CommitOffset", request)
        if answer is None:
            return
        self.check_code(answer[0], "OffsetCommit")
        if answer[0] == errors_pb2.NONE:
            self._checker.committed(tip, position + 1)
            self.owned[tip] = position + 1

    async def _ask_coordinator(self, name: str, request: Any) -> Any:
        """Return the answer, or None if there is none."""
        known = self.leaders.get(OFFSETS)
        if known is None or known[1] < 0:
            await self.look()
            return None
        answer = await self.call(known[1], name, request)
        if answer is None or answer[0] == errors_pb2.NOT_COORDINATOR:
            await self.look()
        return answer


def _named(tip: TopicIdPartition) -> tuple[str, int]:
    return TOPIC, tip.partition
