"""Clients of both protocols in one group, each in a task of its own, in virtual time.

They behave as real consumers do: those of the classic protocol give everything up before they join
again (eager), or only what they are not to keep (cooperative), and their leader assigns.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import count

from quorate.broker.common.errors import KafkaError
from quorate.broker.coordinator.groups.consumer.consumer_member import Owned
from quorate.broker.coordinator.groups.consumer.heartbeat_messages import HeartbeatRequest
from quorate.broker.coordinator.groups.group_shard import GroupShard
from quorate.broker.coordinator.groups.state.embedded_protocol import (
    read_assignment,
    read_subscription,
    write_assignment,
)
from quorate.broker.coordinator.groups.state.group_effects import (
    JoinAnswer,
    JoinRequest,
    Leaver,
    SyncRequest,
)
from quorate.broker.coordinator.shards.coordinator_records import INT16, INT32, text_field
from quorate_proto.v1 import errors_pb2
from tests.support.virtual_time import pass_time
from tests.unit.coordinator.memory_log import Place

TOPIC = "orders"
HEARTBEAT_S = 1.0
PAUSE_S = 0.1
_BEGIN_ANEW = frozenset(
    {
        errors_pb2.UNKNOWN_MEMBER_ID,
        errors_pb2.ILLEGAL_GENERATION,
        errors_pb2.FENCED_INSTANCE_ID,
        errors_pb2.FENCED_MEMBER_EPOCH,
    }
)


def write_subscription(topics: Iterable[str], owned: Mapping[str, Iterable[int]]) -> bytes:
    """A subscription of version 1, as consumers of the classic protocol write it."""
    names = sorted(topics)
    partitions = write_assignment(1, owned)[INT16.size : -INT32.size]
    return b"".join(
        [INT16.pack(1), INT32.pack(len(names)), *map(text_field, names), INT32.pack(-1), partitions]
    )


async def everything(names: Collection[str]) -> Collection[str]:
    """The topics that a client may see which may see all of them."""
    return names


class MixedWorld:
    """A group, whoever coordinates it, and who consumes which partition of one topic."""

    def __init__(self, place: Place, partitions: int) -> None:
        self.place = place
        self.topic_id = place.topics.create(TOPIC, partitions)
        self.partitions = partitions
        self.shard: GroupShard | None = None
        self.consumers: dict[int, str] = {}
        self.faults: list[str] = []
        self.ids = count()

    async def fail_over(self) -> None:
        """Another broker takes the group over from the log."""
        former, self.shard = self.shard, None
        if former is not None:
            former.end(errors_pb2.NOT_COORDINATOR)
        self.shard = await self.place.lead()

    def coordinator(self) -> GroupShard:
        if self.shard is None:
            raise KafkaError(errors_pb2.COORDINATOR_LOAD_IN_PROGRESS, "loading")
        return self.shard

    def begins(self, name: str, partition: int) -> None:
        other = self.consumers.setdefault(partition, name)
        if other != name:
            self.faults.append(f"{name} begins with {partition}, which {other} consumes")

    def ends(self, name: str, partition: int) -> None:
        if self.consumers.get(partition) == name:
            del self.consumers[partition]


class MixedClient:
    """One consumer process. ``stop`` ends it: it leaves, or dies."""

    def __init__(self, world: MixedWorld, instance_id: str | None = None) -> None:
        self.world = world
        self.number = next(world.ids)
        self.name = f"{type(self).__name__}-{self.number}"
        self.instance_id = instance_id
        self.member_id = ""
        self.has: frozenset[int] = frozenset()
        self.stopped_for_s = 0.0
        self._stops = asyncio.Event()
        self._leaves = True
        self.task = asyncio.create_task(self._run())

    def stop(self, *, leaves: bool = True) -> None:
        self._leaves = leaves
        self._stops.set()

    async def _run(self) -> None:
        serving = asyncio.create_task(self._serve())
        stopping = asyncio.create_task(self._stops.wait())
        await asyncio.wait([serving, stopping], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if serving.done():
            serving.result()
        serving.cancel()
        await asyncio.wait([serving])
        self.consume(())
        if self._leaves and self.member_id:
            try:
                await self._leave()
            except KafkaError:
                return  # Its session ends instead.

    async def _serve(self) -> None:
        while True:
            try:
                await self._take_part()
            except KafkaError as error:
                if error.code in _BEGIN_ANEW:
                    self.consume(())
                    self._begin_anew()
                else:
                    await pass_time(PAUSE_S)

    def consume(self, partitions: Iterable[int]) -> None:
        """Give up what is not to be kept, and then begin with what is new."""
        wanted = frozenset(partitions)
        for partition in self.has - wanted:
            self.world.ends(self.name, partition)
        for partition in wanted - self.has:
            self.world.begins(self.name, partition)
        self.has = wanted

    async def _take_part(self) -> None:
        raise NotImplementedError

    async def _leave(self) -> None:
        raise NotImplementedError

    def _begin_anew(self) -> None:
        raise NotImplementedError


class ClassicClient(MixedClient):
    """A consumer of the classic protocol."""

    is_cooperative = False
    protocol = "range"

    async def _take_part(self) -> None:
        joined = await self._join()
        assigned = await self._sync(joined)
        revokes = not self.has <= assigned
        self.consume(assigned)
        if self.is_cooperative and revokes:
            return
        while True:
            await pass_time(HEARTBEAT_S)
            generation = joined.generation_id
            code = self.world.coordinator().heartbeat(
                "g", self.member_id, self.instance_id, generation
            )
            if code == errors_pb2.REBALANCE_IN_PROGRESS:
                if not self.is_cooperative:
                    self.consume(())
                return
            _raise(code)

    async def _join(self) -> JoinAnswer:
        while True:
            metadata = write_subscription([TOPIC], {TOPIC: self.has} if self.has else {})
            request = JoinRequest(
                0,
                self.member_id,
                f"{self.name}-{next(self.world.ids)}",
                self.instance_id,
                self.name,
                "h",
                10_000,
                5_000,
                "consumer",
                ((self.protocol, metadata),),
            )
            answer = await self.world.coordinator().join("g", request)
            if answer.error_code == errors_pb2.MEMBER_ID_REQUIRED:
                self.member_id = answer.member_id
                continue
            _raise(answer.error_code)
            self.member_id = answer.member_id
            return answer

    async def _sync(self, joined: JoinAnswer) -> frozenset[int]:
        assignments: tuple[tuple[str, bytes], ...] = ()
        if joined.leader_id == self.member_id:
            owned = {
                each.member_id: read_subscription(each.metadata).owned.get(TOPIC, frozenset())
                for each in joined.members
            }
            assignments = tuple(
                (member_id, write_assignment(1, {TOPIC: own} if own else {}))
                for member_id, own in self._assign(owned).items()
            )
        request = SyncRequest(
            0,
            self.member_id,
            self.instance_id,
            joined.generation_id,
            "consumer",
            self.protocol,
            assignments,
        )
        answer = await self.world.coordinator().sync("g", request)
        _raise(answer.error_code)
        return read_assignment(answer.assignment).partitions.get(TOPIC, frozenset())

    def _assign(self, owned: Mapping[str, Collection[int]]) -> dict[str, set[int]]:
        members = sorted(owned)
        return {
            member_id: set(range(at, self.world.partitions, len(members)))
            for at, member_id in enumerate(members)
        }

    async def _leave(self) -> None:
        self.world.coordinator().leave("g", [Leaver(self.member_id, self.instance_id)])

    def _begin_anew(self) -> None:
        self.member_id = ""


class CooperativeClient(ClassicClient):
    """It goes on with what it keeps while it joins again (KIP-429)."""

    is_cooperative = True
    protocol = "cooperative-sticky"

    def _assign(self, owned: Mapping[str, Collection[int]]) -> dict[str, set[int]]:
        """Assign alike, but nothing that another member has to give up first."""
        wanted = super()._assign(owned)
        owner_of = {p: member_id for member_id, own in owned.items() for p in own}
        return {
            member_id: {p for p in own if owner_of.get(p, member_id) == member_id}
            for member_id, own in wanted.items()
        }


class ConsumerClient(MixedClient):
    """A consumer of the consumer protocol."""

    def __init__(self, world: MixedWorld, instance_id: str | None = None) -> None:
        self.epoch = 0
        super().__init__(world, instance_id)

    async def _take_part(self) -> None:
        self.member_id = self.member_id or f"{self.name}-{next(self.world.ids)}"
        joins = self.epoch == 0
        own = {self.world.topic_id: self.has} if self.has else {}
        request = HeartbeatRequest(
            self.member_id,
            self.epoch,
            self.name,
            "h",
            self.instance_id,
            rebalance_timeout_ms=5_000 if joins else -1,
            topic_names=frozenset({TOPIC}) if joins else None,
            claimed={} if joins else own,
        )
        coordinator = self.world.coordinator()
        answer = await coordinator.consumer_heartbeat("g", request, everything)
        self.epoch = answer.member_epoch
        if answer.assigned is not None:
            self._do_as_told(answer.assigned)
        await pass_time(HEARTBEAT_S)

    def _do_as_told(self, assigned: Owned) -> None:
        self.consume(assigned.get(self.world.topic_id, {}))

    async def _leave(self) -> None:
        request = HeartbeatRequest(self.member_id, -1, self.name, "h", self.instance_id)
        await self.world.coordinator().consumer_heartbeat("g", request, everything)

    def _begin_anew(self) -> None:
        self.epoch = 0


def _raise(code: int) -> None:
    if code:
        raise KafkaError(code, "refused")


def all_done(clients: Sequence[MixedClient]) -> None:
    """Raise what went wrong in a client."""
    for client in clients:
        if client.task.done():
            client.task.result()
