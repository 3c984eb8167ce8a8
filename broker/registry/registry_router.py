"""Has each request to the registry carried out by the leader of its topic: this broker, or another
one by gRPC. Every broker answers alike, and a change that was answered is seen by everybody.
"""

import asyncio
import logging
from typing import Final, NamedTuple

import grpc.aio

from quorate.broker.common.errors import KafkaError, error_name
from quorate.broker.config.registry import REGISTRY_REPLICATION_FACTOR, SCHEMAS_TOPIC
from quorate.broker.config.topic_keys import (
    TOPIC_CLEANUP_POLICY,
    TOPIC_MIN_INSYNC_REPLICAS,
    TOPIC_UNCLEAN_LEADER_ELECTION,
)
from quorate.broker.coordinator.shards.coordinator_records import CommitOutcomeUnknown
from quorate.broker.kafka.connection.requests import RequestContext
from quorate.broker.kafka.metadata.topic_auto_creation import TopicCreations
from quorate.broker.kafka.services import KafkaServices
from quorate.broker.registry.operations.calls import HeavyWork, RegistryCall
from quorate.broker.registry.operations.table import Operation
from quorate.broker.registry.registry_errors import RegistryError, no_leader
from quorate.broker.registry.registry_json import json_bytes
from quorate.broker.registry.registry_shard import RegistryLeader
from quorate.broker.registry.state.registry_state import RegistryState
from quorate.broker.rpc.peer_channels import Peer, PeerChannels
from quorate.common.types import BrokerId, TopicPartition
from quorate_proto.v1 import admin_pb2, errors_pb2, registry_pb2, registry_pb2_grpc

_log: Final = logging.getLogger(__name__)

CALL_TIMEOUT_S: Final = 15.0
"""The time in which a request is answered, also when another broker must become the leader."""
_RETRY_INTERVAL_S: Final = 0.05
_TOPIC: Final = TopicPartition(SCHEMAS_TOPIC, 0)
_NOT_REPEATED: Final = frozenset({"DeleteSubject", "DeleteVersion"})
"""Changes that would be answered otherwise if they were carried out a second time."""


class RegistryRouter:
    """Finds the leader of the registry's topic, which is created with the first change."""

    def __init__(
        self, services: KafkaServices, channels: PeerChannels, leader: RegistryLeader
    ) -> None:
        self._services = services
        self._channels = channels
        self._leader = leader
        self._creations = TopicCreations()

    async def call(
        self, operation: Operation, call: RegistryCall, context: RequestContext
    ) -> bytes:
        """Return the answer to a request, as JSON.

        Raises:
            RegistryError: it is refused, or nobody has carried it out in time.
        """
        reason = "it is not known"
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + CALL_TIMEOUT_S
        while loop.time() < deadline_s:
            try:
                attempt = await self._attempt(operation, call, context, deadline_s - loop.time())
            except KafkaError as error:
                unknown = isinstance(error, CommitOutcomeUnknown)
                attempt = _NotCarriedOut(f"{error_name(error.code)}: {error.message}", unknown)
            if isinstance(attempt, bytes):
                return attempt
            reason = attempt.reason
            if attempt.outcome_unknown and operation.name in _NOT_REPEATED:
                break
            await asyncio.sleep(_RETRY_INTERVAL_S)
        raise no_leader(f"the leader of {SCHEMAS_TOPIC} did not answer: {reason}")

    async def _attempt(
        self,
        operation: Operation,
        call: RegistryCall,
        context: RequestContext,
        left_s: float,
    ) -> "bytes | _NotCarriedOut":
        image = self._services.images.image
        partition = image.partition(_TOPIC)
        if partition is None:
            return await self._without_topic(operation, call, context)
        if partition.leader == self._services.broker_id:
            return await self._here(operation, call, context)
        broker = image.brokers.get(partition.leader)
        if broker is None:
            return _NotCarriedOut("it has no leader now")
        return await self._there(Peer.of(broker), operation, call, context, left_s)

    async def _here(
        self, operation: Operation, call: RegistryCall, context: RequestContext
    ) -> "bytes | _NotCarriedOut":
        shard = self._leader.shard
        if shard is None:
            return _NotCarriedOut("it is being read")
        rights = self._services.authorizer.rights_of(context)
        return json_bytes(await shard.carry_out(operation, call, rights))

    async def _there(
        self,
        peer: Peer,
        operation: Operation,
        call: RegistryCall,
        context: RequestContext,
        left_s: float,
    ) -> "bytes | _NotCarriedOut":
        request = _request(operation, call, context, self._services.broker_id, left_s)
        stub = registry_pb2_grpc.SchemaRegistryStub(self._channels.get(peer))
        try:
            answer = await stub.Call(request, timeout=left_s)
        except grpc.aio.AioRpcError as error:
            _log.info("broker %d did not answer for the registry: %s", peer.broker_id, error)
            is_old = error.code() is grpc.StatusCode.UNIMPLEMENTED
            reason = "it is of an older release" if is_old else "it cannot be reached"
            return _NotCarriedOut(f"broker {peer.broker_id}: {reason}", outcome_unknown=not is_old)
        if answer.error_code:
            unknown = answer.error_code == errors_pb2.REQUEST_TIMED_OUT
            why = f"broker {peer.broker_id}: {error_name(answer.error_code)}"
            return _NotCarriedOut(why, unknown)
        if answer.refusal_code:
            raise RegistryError(answer.status, answer.refusal_code, answer.message)
        return answer.body

    async def _without_topic(
        self, operation: Operation, call: RegistryCall, context: RequestContext
    ) -> "bytes | _NotCarriedOut":
        """Answer a read: nothing is registered. Before a change, have the topic created.

        The request is decided on first, so that nobody has it created who may not change anything.
        """
        rights = self._services.authorizer.rights_of(context)
        outcome = operation.handle(RegistryState(), call, rights)
        if not operation.is_change:
            if isinstance(outcome, HeavyWork):
                result = await asyncio.to_thread(outcome.compute, outcome.plan)
                outcome = outcome.decide(result)
            return json_bytes(outcome.answer)
        creation = self._creations.begin(
            self._services.forwarder, context, operation.name, self._new_topic()
        )
        code = await asyncio.shield(creation)
        known = (errors_pb2.NONE, errors_pb2.TOPIC_ALREADY_EXISTS)
        why = "it is being created" if code in known else f"creation: {error_name(code)}"
        return _NotCarriedOut(why)

    def _new_topic(self) -> admin_pb2.NewTopic:
        live = max(1, len(self._services.metadata.brokers))
        replicas = min(self._services.config[REGISTRY_REPLICATION_FACTOR], live)
        return admin_pb2.NewTopic(
            name=SCHEMAS_TOPIC,
            num_partitions=1,
            replication_factor=replicas,
            configs={
                TOPIC_CLEANUP_POLICY.key.name: "compact",
                # A schema that was answered must outlive its leader.
                TOPIC_MIN_INSYNC_REPLICAS.key.name: "2" if replicas > 2 else "1",
                TOPIC_UNCLEAN_LEADER_ELECTION.key.name: "false",
            },
        )


class _NotCarriedOut(NamedTuple):
    """Why an attempt did not succeed. ``outcome_unknown`` means that it may have, all the same."""

    reason: str
    outcome_unknown: bool = False


def _request(
    operation: Operation,
    call: RegistryCall,
    context: RequestContext,
    broker_id: BrokerId,
    left_s: float,
) -> registry_pb2.RegistryRequest:
    forwarded = context.for_controller(operation.name, int(left_s * 1_000))
    forwarded.forwarded_by = broker_id
    return registry_pb2.RegistryRequest(
        context=forwarded,
        operation=operation.name,
        parameters=call.parameters,
        query=[registry_pb2.QueryParameter(name=key, value=value) for key, value in call.query],
        body=call.body,
    )
