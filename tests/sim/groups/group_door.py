"""What members of groups ask of a simulated broker: Kafka's requests without their wire format."""

from collections.abc import Awaitable, Callable, Collection
from typing import Any

from quorate.broker.common.errors import KafkaError
from quorate.broker.coordinator.groups.consumer.heartbeat_messages import HeartbeatRequest
from quorate.broker.coordinator.groups.state.committed_offsets import CommittedOffset
from quorate.broker.kafka.services import KafkaServices
from quorate.common.types import TopicPartition
from quorate_proto.v1 import errors_pb2


class GroupDoor:
    """Serves the requests of one broker. Each answer begins with an error code."""

    def __init__(self, services: KafkaServices) -> None:
        self._services = services

    def handlers(self) -> dict[str, Callable[[Any, Any], Awaitable[Any]]]:
        """Return the handlers by the names of their requests."""
        return {
            "ConsumerHeartbeat": self._heartbeat,
            "CommitOffset": self._commit,
            "CommittedOffset": self._committed,
        }

    async def _heartbeat(self, request: Any, _: Any) -> Any:
        """(error code, member epoch, {topic id: partitions} or None)."""
        group_id, fields = request
        try:
            shard = self._services.groups.shard_of(group_id)
            answer = await shard.consumer_heartbeat(group_id, HeartbeatRequest(*fields), _all)
        except KafkaError as error:
            return error.code, 0, None
        assigned = answer.assigned
        told = None if assigned is None else {one: set(own) for one, own in assigned.items()}
        return errors_pb2.NONE, answer.member_epoch, told

    async def _commit(self, request: Any, _: Any) -> Any:
        """(error code,)."""
        group_id, member_id, epoch, tp, offset = request
        try:
            shard = self._services.groups.shard_of(group_id)
            commits = {TopicPartition(*tp): CommittedOffset(offset, 0, "", 0)}
            code = await shard.commit(group_id, member_id, None, epoch, commits, knows_epochs=True)
        except KafkaError as error:
            code = error.code
        return (code,)

    async def _committed(self, request: Any, _: Any) -> Any:
        """(error code, offset): 0 where nothing was committed."""
        group_id, tp = request
        try:
            offsets = self._services.groups.shard_of(group_id).offsets(group_id)
        except KafkaError as error:
            return error.code, 0
        found = offsets.get(TopicPartition(*tp))
        return errors_pb2.NONE, 0 if found is None else found.offset


async def _all(names: Collection[str]) -> Collection[str]:
    """Return the topics that a client may see which may see all of them."""
    return names
