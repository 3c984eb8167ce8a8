"""Replica managers with real logs, connected over real gRPC on loopback, in one process.

The quorum is ``LocalQuorum``; the controller is the test, through the verbs of ``ReplicaCluster``.
"""

import asyncio
import time
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Self

import grpc.aio

from quorate.broker.log import (
    KEEP_ALL,
    LogCallbacks,
    LogDirectories,
    LogManager,
    LogOptions,
    Retention,
)
from quorate.broker.log.options import Flush
from quorate.broker.log.writing.log_writer import LogManagerEvents
from quorate.broker.metadata.metadata_cache import MetadataCache
from quorate.broker.metadata.metadata_follower import MetadataFollower
from quorate.broker.quota.client_memory import ResponseMemory
from quorate.broker.replication.api import (
    FetchOutcome,
    FetchParams,
    FetchPartition,
    ProduceEntry,
    ProduceOutcome,
)
from quorate.broker.replication.commands.stray_partitions import AssignmentCheck
from quorate.broker.replication.hosting.hosted_partition import HostedPartition
from quorate.broker.replication.manager import ReplicaManager, ReplicationOptions
from quorate.broker.replication.services.range_read_service import add_range_read_to_server
from quorate.broker.replication.services.range_write_service import add_range_write_to_server
from quorate.broker.replication.services.replication_listener import ReplicationListener
from quorate.broker.replication.services.replication_service import add_replication_to_server
from quorate.broker.rpc.peer_channels import GRPC_OPTIONS, Peer, connect, open_channel
from quorate.common.clock import monotonic_ms
from quorate.common.grpc_support.refusal_log import RefusalLog
from quorate.common.types import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    Endpoint,
    LeaderEpoch,
    TopicId,
    TopicPartition,
)
from quorate.metadata_log.features import NEWEST_METADATA_VERSION
from quorate.metadata_log.partitions import Partition
from quorate.metadata_log.records import (
    BrokerRegistration,
    ControllerClaim,
    ControllerEpochIs,
    NewPartition,
    Operation,
    PartitionChange,
    Record,
    TopicCreated,
)
from quorate_proto.v1 import control_pb2, errors_pb2, metadata_pb2
from tests.support.acls import ALL_RIGHTS
from tests.support.fixed_limits import FixedLimits
from tests.support.identities import registered
from tests.support.local_quorum import LocalQuorum, LocalQuorumClient
from tests.support.log_folders import opened_folders
from tests.support.metadata import topic_id_of
from tests.support.record_batches import Record as KafkaRecord
from tests.support.record_batches import encode_batch
from tests.support.waiting import async_wait_until

CONTROLLER = BrokerId(99)
RANGE_BYTES = 64 << 20
"""The bytes of a node's memory that readers of ranges may hold."""


def batch(*values: str) -> bytes:
    """One batch of records with these values."""
    return encode_batch([KafkaRecord(i, value=v.encode()) for i, v in enumerate(values)])


def batches(prefix: str, count: int) -> list[bytes]:
    """``count`` batches of one record each."""
    return [batch(f"{prefix} {number}") for number in range(count)]


class ProcessClock:
    """The clocks of this process."""

    def now_ms(self) -> int:
        return monotonic_ms()

    def wall_clock_ms(self) -> int:
        return time.time_ns() // 1_000_000


class RealNetwork:
    """Channels over loopback."""

    def open_channel(self, peer: Peer) -> grpc.aio.Channel:
        return open_channel(peer)

    async def connect(self, peer: Peer, port: int, protocol: asyncio.BaseProtocol) -> None:
        await connect(peer, port, protocol)


class ReplicaNode:
    """One broker without Kafka listener and controller."""

    def __init__(
        self,
        broker_id: int,
        folder: Path,
        quorum: LocalQuorum,
        options: ReplicationOptions,
        flush: Flush,
        limits: FixedLimits,
        disks: int,
    ) -> None:
        self.disks = [folder / f"disk-{number}" for number in range(disks)]
        self._opened = AsyncExitStack()
        self.broker_id = BrokerId(broker_id)
        self.folder = folder
        self.client: LocalQuorumClient = quorum.client(f"broker {broker_id}")
        self.follower = MetadataFollower(self.client)
        self.identity = registered(broker_id, None)
        self.endpoint = Endpoint("127.0.0.1", 0)
        self.cache = MetadataCache()
        self.limits = limits
        self._options = options
        self.manager: ReplicaManager
        self._flush: Flush = flush
        self._incarnation = 0
        self._producer_ids = 1000 * broker_id
        self._server: grpc.aio.Server | None = None
        self._followers: ReplicationListener
        self.store: LogManager | None = None

    async def start(self, incarnation: int) -> None:
        self._incarnation = incarnation
        events = LogManagerEvents()
        if self.disks:
            opening = opened_folders(self.disks, events)
            directories = await self._opened.enter_async_context(opening)
        else:
            self.store = await LogManager.open(
                self.folder,
                LogOptions(flush=self._flush, segment_bytes=4 << 20),
                LogCallbacks.to(events),
            )
            directories = LogDirectories.alone(self.store)
        self.manager = ReplicaManager(
            self.identity,
            directories,
            self._options,
            quorum=self.client,
            metadata=self.follower,
            assignments=AssignmentCheck(self.broker_id, self.client, self.follower),
            limits=self.limits,
            throttles=self.limits.throttles(),
            clock=ProcessClock(),
            network=RealNetwork(),
            partition_count=self.cache.partition_count,
        )
        events.subscribe(self.manager)
        self.manager.start()
        self._server = grpc.aio.server(options=list(GRPC_OPTIONS))
        port = self._server.add_insecure_port("127.0.0.1:0")
        self._followers = ReplicationListener(
            self.manager.table, None, RefusalLog("inter-broker port")
        )
        await self._followers.start(Endpoint("127.0.0.1", 0))
        add_replication_to_server(self._server, self.manager, self._followers)
        self.range_memory = ResponseMemory(RANGE_BYTES)
        add_range_read_to_server(
            self._server,
            self.manager,
            self.cache,
            lambda: ALL_RIGHTS,
            self.limits.max_batch_bytes,
            self.range_memory,
        )
        add_range_write_to_server(self._server, self.manager, self, lambda: ALL_RIGHTS)
        await self._server.start()
        self.endpoint = Endpoint("127.0.0.1", port)
        await self.client.start()
        await self.follower.start()
        await self._register()

    async def register_again(self) -> None:
        """Register after the session was lost: with a new one, and a new broker epoch."""
        await self.client.renew_session()
        await self._register()

    async def _register(self) -> None:
        registration = BrokerRegistration(
            broker_id=self.broker_id,
            session_id=self.client.session_id,
            incarnation_id=f"incarnation{self._incarnation:5}".encode(),
            kafka=Endpoint("127.0.0.1", 1),
            grpc=self.endpoint,
            metadata_version_max=NEWEST_METADATA_VERSION,
        )
        result = await self.client.transact([Operation(records=(registration,))])
        assert result.ok, result
        self.identity.register(BrokerEpoch(result.results[0].version))

    async def stop(self) -> None:
        """Stop, and end the session: the quorum knows at once."""
        await self.manager.close()
        if self._server is not None:
            await self._server.stop(None)
            await self._stop_listening()
        await self.follower.close()
        await self.client.close()
        if self.store is not None:
            await self.store.close()
        await self._opened.aclose()

    async def cut_off(self) -> None:
        """Stop the server, so that nobody can connect to it any more, and it sends nothing."""
        assert self._server is not None
        await self._server.stop(None)
        await self._stop_listening()

    async def _stop_listening(self) -> None:
        """Accept nobody any more, then stop the listener in the next turn of the event loop.

        asyncio of Python 3.11 loses a connection that was accepted in the turn in which the server
        is closed: its socket stays open until it is collected. The brokers' own loop does not.
        """
        loop = asyncio.get_running_loop()
        for server in self._followers._sockets._servers:
            for listening in server.sockets:
                loop.remove_reader(listening.fileno())
        await asyncio.sleep(0)
        await self._followers.stop()

    async def take(self) -> int:
        """A producer id."""
        self._producer_ids += 1
        return self._producer_ids

    def hosted(self, topic: str, partition: int = 0) -> HostedPartition:
        found = self.manager.table.named(TopicPartition(topic, partition))
        assert found is not None, f"broker {self.broker_id} has no replica of {topic}-{partition}"
        return found

    async def produce(
        self, topic: str, *records: bytes, acks: int = -1, timeout_ms: int = 10_000
    ) -> list[ProduceOutcome]:
        """One request per batch, pipelined, to partition 0."""
        tp = TopicPartition(topic, 0)
        requests = [
            asyncio.ensure_future(self.manager.produce([ProduceEntry(tp, each)], acks, timeout_ms))
            for each in records
        ]
        return [outcome for outcomes in await asyncio.gather(*requests) for outcome in outcomes]

    async def fetch(self, topic: str, offset: int, *, max_wait_ms: int = 0) -> FetchOutcome:
        want = FetchPartition(TopicPartition(topic, 0), offset, 1 << 30)
        (outcome,) = await self.manager.fetch(
            [want], FetchParams(max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=1 << 30)
        )
        return outcome

    def log_bytes(self, topic: str, up_to: int | None = None) -> bytes:
        """Every byte of partition 0 below ``up_to``."""
        log = self.hosted(topic).log
        end = log.log_end_offset if up_to is None else up_to
        return b"".join(log.read(log.log_start_offset, 1 << 30, end).chunks)


class ReplicaCluster:
    """The brokers, and the verbs of a controller."""

    def __init__(
        self,
        folder: Path,
        *,
        flush: Flush = "os",
        lag_time_max_ms: int = 30_000,
        min_insync_replicas: int = 1,
        kept: Retention = KEEP_ALL,
        disks: int = 0,
    ) -> None:
        """``kept``: looked at ten times a second. ``disks``: the log folders of each broker, 0 for
        one that is the broker's folder itself."""
        self._disks = disks
        self.quorum = LocalQuorum()
        self.nodes: dict[int, ReplicaNode] = {}
        self._folder = folder
        self._flush: Flush = flush
        self._options = ReplicationOptions(fetch_wait_max_ms=100, retention_check_interval_ms=100)
        self._limits = FixedLimits(
            lag_time=lag_time_max_ms, min_insync=min_insync_replicas, kept=kept
        )
        self._incarnations = 0
        session = self.quorum.open_session("the test's controller", 60_000)
        self._write(
            BrokerRegistration(
                broker_id=CONTROLLER,
                session_id=session,
                incarnation_id=b"the controller's",
                kafka=Endpoint("127.0.0.1", 1),
                grpc=Endpoint("127.0.0.1", 1),
                metadata_version_max=NEWEST_METADATA_VERSION,
            ),
            ControllerClaim(
                broker_id=CONTROLLER,
                session_id=session,
                timestamp_ms=0,
                controller_epoch=ControllerEpoch(1),
            ),
            as_controller=False,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def start(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            self._incarnations += 1
            node = ReplicaNode(
                broker_id,
                self._folder / f"broker-{broker_id}",
                self.quorum,
                self._options,
                self._flush,
                self._limits,
                self._disks,
            )
            await node.start(self._incarnations)
            self.nodes[broker_id] = node

    async def stop(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            await self.nodes.pop(broker_id).stop()

    async def close(self) -> None:
        await asyncio.gather(*(node.stop() for node in self.nodes.values()))
        self.nodes.clear()

    # -- the controller --------------------------------------------------------------------------

    async def create_topic(
        self,
        name: str,
        *replicas: tuple[int, ...],
        isr: tuple[int, ...] | None = None,
        generation: int = 0,
    ) -> None:
        """One partition per tuple of replicas, the first leading; the brokers are told."""
        self._write(
            TopicCreated(
                name=name,
                topic_id=topic_id_of(name, generation),
                partitions=tuple(
                    NewPartition(
                        replicas=_ids(members),
                        leader=BrokerId(members[0]),
                        isr=_ids(isr or members),
                    )
                    for members in replicas
                ),
                controller_id=CONTROLLER,
                controller_epoch=ControllerEpoch(1),
            )
        )
        await self.tell(name)

    async def elect(
        self,
        topic: str,
        leader: int,
        *,
        isr: Sequence[int],
        tell: Iterable[int] | None = None,
    ) -> None:
        """Write a new leader, one epoch up, and tell the brokers (or only some of them)."""
        before = self.partition(topic)
        self._write(
            PartitionChange(
                topic=topic,
                topic_id=self.topic_id(topic),
                partition=0,
                expected_version=before.version,
                leader=BrokerId(leader),
                leader_epoch=LeaderEpoch(before.leader_epoch + 1),
                isr=_ids(isr),
                controller_id=CONTROLLER,
                controller_epoch=ControllerEpoch(1),
            )
        )
        await self.tell(topic, to=tell)

    async def tell(self, *topics: str, to: Iterable[int] | None = None) -> None:
        """LeaderAndIsr, as the image says, to the brokers that run."""
        for broker_id in list(self.nodes) if to is None else list(to):
            outcomes = await self.nodes[broker_id].manager.apply_leader_and_isr(
                self.leader_and_isr(broker_id, *topics)
            )
            assert all(o.error_code == errors_pb2.NONE for o in outcomes), outcomes

    def leader_and_isr(
        self, broker_id: int, *topics: str, is_init: bool = False
    ) -> control_pb2.LeaderAndIsrRequest:
        """Return the request that the image makes for the broker's partitions of these topics."""
        image = self.quorum.image
        request = control_pb2.LeaderAndIsrRequest(
            header=control_pb2.ControlHeader(
                controller_id=CONTROLLER, controller_epoch=1, metadata_offset=image.offset
            ),
            is_init=is_init,
        )
        for node in self.nodes.values():
            request.brokers.add(
                broker_id=node.broker_id,
                grpc=metadata_pb2.Endpoint(host=node.endpoint.host, port=node.endpoint.port),
            )
        for name in topics:
            topic = image.topics[name]
            told = request.topics.add(topic=name, topic_id=topic.topic_id)
            for number, leaf in enumerate(topic.partitions):
                if broker_id in leaf.replicas:
                    told.partitions.add(
                        partition=number,
                        leader=leaf.leader,
                        leader_epoch=leaf.leader_epoch,
                        isr=leaf.isr,
                        record_version=leaf.version,
                        replicas=leaf.replicas,
                    )
        return request

    def stop_replica(
        self, topic: str, *, leader_epoch: int, delete: bool, generation: int = 0
    ) -> control_pb2.StopReplicaRequest:
        request = control_pb2.StopReplicaRequest()
        request.partitions.add(
            topic=topic,
            topic_id=topic_id_of(topic, generation),
            partition=0,
            leader_epoch=leader_epoch,
            delete_data=delete,
        )
        return request

    # -- what is so ------------------------------------------------------------------------------

    def topic_id(self, topic: str) -> TopicId:
        return self.quorum.image.topics[topic].topic_id

    def partition(self, topic: str) -> Partition:
        return self.quorum.image.topics[topic].partitions[0]

    def isr(self, topic: str) -> set[int]:
        return set(self.partition(topic).isr)

    async def settled(self, topic: str, *broker_ids: int) -> None:
        """These replicas hold the same bytes, durably."""
        hosted = [self.nodes[broker_id].hosted(topic) for broker_id in broker_ids]

        def same_end() -> bool:
            ends = {h.log.log_end_offset for h in hosted} | {h.log.flushed_offset for h in hosted}
            return len(ends) == 1

        await async_wait_until(same_end, f"brokers {broker_ids} to have the same of {topic}")
        assert len({self.nodes[broker_id].log_bytes(topic) for broker_id in broker_ids}) == 1

    async def watermark_is(self, topic: str, broker_id: int, offset: int) -> None:
        replica = self.nodes[broker_id].hosted(topic).replica
        await async_wait_until(
            lambda: replica.high_watermark == offset,
            lambda: f"{offset} as high watermark of {topic}: it is {replica.high_watermark}",
        )

    async def isr_is(self, topic: str, *broker_ids: int) -> None:
        await async_wait_until(
            lambda: self.isr(topic) == set(broker_ids),
            lambda: f"{broker_ids} as ISR of {topic}: it is {self.isr(topic)}",
        )

    def _write(self, *records: Record, as_controller: bool = True) -> None:
        epoch = ControllerEpochIs(controller_epoch=ControllerEpoch(1))
        result = self.quorum.write(
            Operation(records=records, conditions=(epoch,) if as_controller else ())
        )
        assert result.ok, result


def _ids(values: Iterable[int]) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, values))
