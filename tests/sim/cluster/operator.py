"""People and tools at work: topics come and go, offices change hands, brokers are stopped in order.

What an operator may do at any time, without asking whether it is a good moment.
"""

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

import grpc.aio

from quorate.broker.common.errors import error_name
from quorate.common.types import NO_BROKER
from quorate.metadata_log.features import FEATURES
from quorate.metadata_log.image import Image
from quorate.metadata_log.records import (
    ConfigSet,
    ControllerEpochIs,
    ControllerRemoved,
    FeatureLevel,
    Operation,
)
from quorate_proto.v1 import admin_pb2, admin_pb2_grpc
from tests.sim.cluster.client import CALL_TIMEOUT_S, Client
from tests.sim.cluster.quorum import SimulatedQuorum
from tests.sim.cluster.rpc_frames import endpoint_of

if TYPE_CHECKING:
    from tests.sim.cluster.clients import Clients

PARTITIONS_MAX: Final = 4

NAMES: Final = ("a", "b", "c", "d")
"""Few, so that names come back with other topics behind them."""


class Operator(Client):
    """One piece of work at a time; each request carries a number of its own (F2)."""

    def __init__(self, clients: "Clients", quorum: SimulatedQuorum) -> None:
        super().__init__(clients, 50)
        self._quorum = quorum
        self._requests = 0
        self.kept_in_size: set[str] = set()
        """Topics that keep their number of partitions. A change of it while a broker is down makes
        all partitions of the topic look new to the broker: it misses a log that was lost then."""
        self.protected: frozenset[str] = frozenset()
        """Topics that stay as they are, because a group works with them."""
        self._broker_count = len(clients.broker_ids)

    def create(self) -> None:
        """A topic of any of the names."""
        self._begin(self._create(self.world.random.choice(NAMES)))

    def create_as(self, topic: admin_pb2.NewTopic) -> None:
        """Create a topic, and ask again until it is there."""

        async def until_there() -> None:
            while topic.name not in self._quorum.image.topics:
                await self._create_as(topic)
                await self.pause(0.3)

        self._begin(until_there())

    def delete(self) -> None:
        names = self._changeable
        if len(names) > 1:
            self._begin(self._delete(self.world.random.choice(names)))

    def replace(self) -> None:
        """Delete, and create again under the same name."""

        async def both(name: str) -> None:
            await self._delete(name)
            await self._create(name)

        names = self._changeable
        if names:
            self._begin(both(self.world.random.choice(names)))

    def grow(self) -> None:
        """Partitions for any topic (C14)."""
        self._on_any_topic(self._grow)

    def shrink(self) -> None:
        """Remove the highest partitions of any topic (C14)."""
        self._on_any_topic(self._shrink)

    def shrink_and_grow(self) -> None:
        """Partitions come again under the numbers of removed ones, as soon as those are gone."""

        async def both(name: str) -> None:
            await self._shrink(name)
            for _ in range(40):
                if name not in self._quorum.image.removals:
                    break
                await self.pause(0.2)
            await self._grow(name)

        self._on_any_topic(both)

    def elect(self) -> None:
        """Preferred leaders everywhere."""
        self._begin(self._elect())

    @property
    def _changeable(self) -> list[str]:
        return sorted(set(self._quorum.image.topics) - self.protected)

    def _on_any_topic(self, work: Callable[[str], Coroutine[Any, Any, None]]) -> None:
        names = sorted(set(self._changeable) - self.kept_in_size)
        if names:
            self._begin(work(self.world.random.choice(names)))

    def remove_controller(self) -> None:
        """``quorate metadata rm /controller`` (E5)."""
        self.world.note("operator removes /controller")
        self._quorum.write(Operation(records=(ControllerRemoved(broker_id=NO_BROKER),)))

    def set_config(self, topic: str, key: str, value: str) -> None:
        """Set a configuration of one topic straight in the log, under the present controller's
        epoch."""
        image = self._quorum.image
        config = ConfigSet(entity_type="topic", entity_name=topic, key=key, value=value)
        epoch = ControllerEpochIs(controller_epoch=image.controller_epoch)
        self._quorum.write(Operation(records=(config,), conditions=(epoch,)))

    def upgrade(self) -> None:
        """Raise a feature to the newest level that this version knows (B4)."""
        name = self.world.random.choice(sorted(FEATURES))
        image = self._quorum.image
        if image.controller is not None:
            level = FeatureLevel(name=name, level=FEATURES[name].newest)
            epoch = ControllerEpochIs(controller_epoch=image.controller_epoch)
            result = self._quorum.write(Operation(records=(level,), conditions=(epoch,)))
            self.world.note(f"operator raises {name}: {result.results[0].code.name}")

    def change_min_insync(self) -> None:
        image = self._quorum.image
        if image.topics and image.controller is not None:
            name = self.world.random.choice(sorted(image.topics))
            value = self.world.random.choice(["1", "2", "3"])
            self.world.note(f"operator sets min.insync.replicas={value} of {name}")
            self.set_config(name, "min.insync.replicas", value)

    def reassign(self) -> None:
        """Move some partitions to brokers drawn by lot, whatever moves already (C11)."""
        draw, image = self.world.random, self._quorum.image
        request = admin_pb2.AlterPartitionReassignmentsRequest(
            context=self._context(), allow_replication_factor_change=True
        )
        for topic, number in self._some_partitions(image):
            replicas = draw.sample(
                self.clients.broker_ids, draw.randint(1, min(3, self._broker_count))
            )
            request.partitions.add(topic=topic, partition=number, replicas=replicas)
        self._begin(self._at_controller("AlterPartitionReassignments", request))

    def cancel_reassignments(self) -> None:
        image = self._quorum.image
        request = admin_pb2.AlterPartitionReassignmentsRequest(context=self._context())
        for name, pending in sorted(image.reassignments.items()):
            for number in sorted(pending):
                request.partitions.add(topic=name, partition=number, cancel=True)
        if request.partitions:
            self._begin(self._at_controller("AlterPartitionReassignments", request))

    def resign_controller(self) -> None:
        request = admin_pb2.ResignControllerRequest(context=self._context())
        self._begin(self._at_controller("ResignController", request))

    def move_controller(self) -> None:
        """Hand the office to a broker drawn by lot, live or not (E5)."""
        request = admin_pb2.MoveControllerRequest(
            context=self._context(), broker_id=self.any_broker()
        )
        self._begin(self._at_controller("MoveController", request))

    def risk_losses(self) -> None:
        """Availability before safety, for one topic (C2)."""
        names = self._changeable
        if names and self._quorum.image.controller is not None:
            name = self.world.random.choice(names)
            self.allow_unclean(lambda _: [name])

    def _some_partitions(self, image: Image) -> list[tuple[str, int]]:
        """The number of them, or one."""
        every = [
            (name, number)
            for name, topic in sorted(image.topics.items())
            for number in range(len(topic.partitions))
        ]
        return [one for one in every if self.world.chance(0.5)] or every[:1]

    async def _at_controller(self, method: str, request: Any) -> None:
        """Call the broker that the image names as the controller, as the admin client does; others
        refuse (F2)."""
        controller = int(self._quorum.image.controller_id)
        if controller < 0:
            return
        stub = admin_pb2_grpc.AdminStub(self.channel(controller))
        try:
            answer = await getattr(stub, method)(request, timeout=CALL_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            self.world.note(f"operator: {method}: {error.code().name}")
            return
        codes = [error_name(one.error_code) for one in getattr(answer, "partitions", ())]
        self.world.note(f"operator: {method}: {error_name(answer.error_code)} {' '.join(codes)}")

    def allow_unclean(self, allowed: Callable[[Image], list[str]]) -> None:
        """Accept losses for these topics."""
        for name in allowed(self._quorum.image):
            self.world.note(f"operator allows unclean elections of {name}")
            self.set_config(name, "unclean.leader.election.enable", "true")

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        clients = self.clients
        clients.host.deliver(clients.process, lambda: clients.spawn(work))

    def _context(self) -> admin_pb2.RequestContext:
        self._requests += 1
        name = f"request-{self._requests:06}"
        return admin_pb2.RequestContext(principal_name=name, timeout_ms=3_000, forwarded_by=-1)

    async def _create(self, name: str) -> None:
        draw = self.world.random
        replicas = min(self._broker_count, draw.choice([3, 3, 3, 2, 1]))
        configs = {}
        if draw.random() < 0.5:
            configs["min.insync.replicas"] = str(draw.choice([1, 2, 2]))
        if draw.random() < 0.5:
            configs["retention.bytes"] = str(draw.choice([0, 400, 2_000]))
        topic = admin_pb2.NewTopic(
            name=name,
            num_partitions=draw.choice([1, 1, 2, 3]),
            replication_factor=replicas,
            configs=configs,
        )
        await self._create_as(topic)

    async def _create_as(self, topic: admin_pb2.NewTopic) -> None:
        request = admin_pb2.CreateTopicsRequest(context=self._context(), topics=[topic])
        answer = await self.call(self.any_broker(), "CreateTopics", request.SerializeToString())
        if answer is not None:
            response = admin_pb2.CreateTopicsResponse.FromString(answer)
            self._note("create", response.topics)

    async def _delete(self, name: str) -> None:
        request = admin_pb2.DeleteTopicsRequest(context=self._context(), names=[name])
        answer = await self.call(self.any_broker(), "DeleteTopics", request.SerializeToString())
        if answer is not None:
            response = admin_pb2.DeleteTopicsResponse.FromString(answer)
            self._note("delete", response.topics)

    async def _grow(self, name: str) -> None:
        topic = self._quorum.image.topics.get(name)
        if topic is None or len(topic.partitions) >= PARTITIONS_MAX:
            return
        more = admin_pb2.NewPartitions(name=name, count=len(topic.partitions) + 1)
        request = admin_pb2.CreatePartitionsRequest(context=self._context(), topics=[more])
        answer = await self.call(self.any_broker(), "CreatePartitions", request.SerializeToString())
        if answer is not None:
            response = admin_pb2.CreatePartitionsResponse.FromString(answer)
            self._note("grow", response.topics)

    async def _shrink(self, name: str) -> None:
        """No Kafka release can: the controller itself is asked."""
        image = self._quorum.image
        topic = image.topics.get(name)
        if topic is None or len(topic.partitions) == 1 or image.controller is None:
            return
        first = self.world.random.randrange(1, len(topic.partitions))
        highest = admin_pb2.TopicPartitions(
            topic=name, partitions=range(first, len(topic.partitions))
        )
        request = admin_pb2.RemovePartitionsRequest(context=self._context(), topics=[highest])
        channel = self.clients.process.rpc.open_channel(endpoint_of(image.controller.broker_id))
        method = channel.unary_unary(
            "/quorate.v1.Admin/RemovePartitions",
            admin_pb2.RemovePartitionsRequest.SerializeToString,
            admin_pb2.RemovePartitionsResponse.FromString,
        )
        try:
            response = await method(request, timeout=CALL_TIMEOUT_S)
        except grpc.aio.AioRpcError:
            return
        self._note(f"shrink to {first}", response.topics)

    async def _elect(self) -> None:
        request = admin_pb2.ElectLeadersRequest(context=self._context(), all_partitions=True)
        answer = await self.call(self.any_broker(), "ElectLeaders", request.SerializeToString())
        if answer is not None:
            response = admin_pb2.ElectLeadersResponse.FromString(answer)
            elected = sum(one.error_code == 0 for one in response.partitions)
            self.world.note(f"operator: {elected} preferred leaders elected")

    def _note(self, what: str, results: Any) -> None:
        for result in results:
            code = error_name(result.error_code)
            self.world.note(f"operator: {what} {result.name}: {code}")
