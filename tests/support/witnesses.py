"""Brokers that a test adds to a running cluster: they keep every control request, byte for byte.

The quorum and the controller take them for brokers: they have a session and a registration, and
answer over gRPC. They hold no logs. The cluster must be one without TLS.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import grpc

from quorate.common.types import ID_BYTES, BrokerEpoch, BrokerId, Endpoint, MetadataOffset
from quorate.metadata_log.features import NEWEST_INTER_BROKER_PROTOCOL, NEWEST_METADATA_VERSION
from quorate.metadata_log.image import Image
from quorate.metadata_log.records import (
    BrokerRegistration,
    Operation,
    OperationResult,
    Transaction,
)
from quorate.quorum.client.quorum_client import QuorumClient, TransactionsApplied
from quorate.testing import RunningCluster
from quorate_proto.v1 import control_pb2
from tests.integration.quorum_writes import image_now
from tests.support.leadership_outcomes import leadership_outcomes

T = TypeVar("T")

SESSION_TIMEOUT_MS = 30_000
TIMEOUT_S = 20.0

_REQUESTS: dict[str, Any] = {
    "LeaderAndIsr": control_pb2.LeaderAndIsrRequest,
    "StopReplica": control_pb2.StopReplicaRequest,
    "UpdateMetadata": control_pb2.UpdateMetadataRequest,
    "Probe": control_pb2.ProbeRequest,
}


class Received(NamedTuple):
    """One control request as it came."""

    kind: str
    body: bytes
    request: Any


class Witness(grpc.GenericRpcHandler):
    """One broker that answers and remembers."""

    def __init__(self, broker_id: int) -> None:
        self.broker_id = BrokerId(broker_id)
        self.broker_epoch = BrokerEpoch(-1)
        self.received: list[Received] = []
        self.broken: set[str] = set()
        """Topics whose partitions it says it cannot host."""
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.port = 0

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:  # noqa: ANN401
        kind = handler_call_details.method.rpartition("/")[2]
        if kind not in _REQUESTS:
            return None

        def answer(body: bytes, _context: grpc.ServicerContext) -> bytes:
            request = _REQUESTS[kind].FromString(body)
            self.received.append(Received(kind, body, request))
            self.may_answer.wait(TIMEOUT_S)
            return bytes(self._answer(kind, request).SerializeToString())

        return grpc.unary_unary_rpc_method_handler(answer)

    def _answer(self, kind: str, request: Any) -> Any:  # noqa: ANN401 - of each kind its own
        if kind == "Probe":
            return control_pb2.ProbeResponse(controller_epoch=request.controller_epoch)
        epoch = request.header.controller_epoch
        if kind == "UpdateMetadata":
            return control_pb2.UpdateMetadataResponse(controller_epoch=epoch)
        if kind == "StopReplica":
            return control_pb2.StopReplicaResponse(controller_epoch=epoch)
        outcomes = leadership_outcomes(request, self.broken)
        return control_pb2.LeaderAndIsrResponse(controller_epoch=epoch, partitions=outcomes)

    def led(self, topic: str) -> list[control_pb2.LeaderAndIsrRequest]:
        """LeaderAndIsr requests that name the topic, in order."""
        return self._naming("LeaderAndIsr", lambda one: any(t.topic == topic for t in one.topics))

    def stopped(self, topic: str) -> list[control_pb2.StopReplicaRequest]:
        """StopReplica requests that name the topic, in order."""
        return self._naming(
            "StopReplica", lambda one: any(p.topic == topic for p in one.partitions)
        )

    def told(self, topic: str) -> list[bytes]:
        """The bytes of UpdateMetadata requests that name the topic and not everything, in order."""

        def names(request: Any) -> bool:  # noqa: ANN401
            return not request.full and any(t.topic == topic for t in request.topics)

        return [
            one.body
            for one in tuple(self.received)
            if one.kind == "UpdateMetadata" and names(one.request)
        ]

    def _naming(self, kind: str, names: Callable[[Any], bool]) -> list[Any]:
        return [
            one.request for one in tuple(self.received) if one.kind == kind and names(one.request)
        ]


class Stage(NamedTuple):
    """A running cluster with witnesses, and a client of its quorum."""

    cluster: RunningCluster
    witnesses: tuple[Witness, ...]
    desk: "QuorumDesk"


class QuorumDesk:
    """A session with the quorum, on an event loop in a thread of its own."""

    def __init__(self, cluster: RunningCluster) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

        async def start() -> QuorumClient:
            client = QuorumClient(
                [cluster.voter_grpc_address(one) for one in cluster.voter_ids],
                description="witnesses",
                session_timeout_ms=SESSION_TIMEOUT_MS,
                security=cluster.quorum_security(),
            )
            await client.start(deadline_ms=int(TIMEOUT_S * 1000))
            return client

        self.client = self.run(start())

    def run(self, what: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(what, self._loop).result(TIMEOUT_S)

    def close(self) -> None:
        self.run(self.client.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(TIMEOUT_S)
        self._loop.close()

    def write(self, operation: Operation) -> OperationResult:
        """Write to the metadata log, past every broker."""
        return self.run(self.client.transact([operation])).results[0]

    def image(self) -> Image:
        """The image of all that was acknowledged before."""
        return self.run(image_now(self.client))

    def transactions(self, since: MetadataOffset) -> Sequence[tuple[MetadataOffset, Transaction]]:
        """Return all that was acknowledged so far behind that offset, which must not be long
        ago."""

        async def read() -> list[tuple[MetadataOffset, Transaction]]:
            wanted, seen = await self.client.read_offset(), []
            async for event in self.client.watch(since):
                assert isinstance(event, TransactionsApplied), "compacted already"
                seen += [one for one in event.transactions if one[0] > since]
                if event.applied_offset >= wanted:
                    return seen
            raise AssertionError("the watch ended")

        return self.run(read())


@contextmanager
def witnesses(cluster: RunningCluster, broker_ids: Sequence[int]) -> Iterator[Stage]:
    """Register brokers that remember what the controller sends them."""
    found = tuple(map(Witness, broker_ids))
    desk = QuorumDesk(cluster)
    with ThreadPoolExecutor(4 * len(found)) as threads:
        servers = [_serve(one, threads) for one in found]
        try:
            for one in found:
                result = desk.write(Operation(records=(_registration(one, desk),)))
                assert result.ok, result
                one.broker_epoch = BrokerEpoch(result.version)
            yield Stage(cluster, found, desk)
        finally:
            desk.close()
            for one in found:
                one.may_answer.set()
            for server in servers:
                server.stop(None).wait()


def _serve(witness: Witness, threads: ThreadPoolExecutor) -> grpc.Server:
    server = grpc.server(threads, handlers=[witness])
    witness.port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    return server


def _registration(witness: Witness, desk: QuorumDesk) -> BrokerRegistration:
    at = Endpoint("127.0.0.1", witness.port)
    return BrokerRegistration(
        broker_id=witness.broker_id,
        session_id=desk.client.session_id,
        incarnation_id=witness.broker_id.to_bytes(ID_BYTES, "big"),
        kafka=at,
        grpc=at,
        inter_broker_protocol_max=NEWEST_INTER_BROKER_PROTOCOL,
        metadata_version_max=NEWEST_METADATA_VERSION,
    )
