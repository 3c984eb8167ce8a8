"""Who leads partitions that a client asked the wrong broker for, or in an old epoch (KIP-951).

Fetch from version 16 on and Produce from version 10 on tell it beside the error, with the address
of the leader, so that the client need not ask for metadata first.
"""

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from quorate.broker.kafka.wire.primitives import append_length, append_string, append_uvarint
from quorate.broker.metadata.metadata_cache import MetadataCache
from quorate.common.types import BrokerId, Endpoint, LeaderEpoch, TopicId
from quorate_proto.v1 import errors_pb2

WRONG_LEADER: Final = frozenset({errors_pb2.NOT_LEADER_OR_FOLLOWER, errors_pb2.FENCED_LEADER_EPOCH})
"""The errors of Fetch with which the leader is told. With Produce it is the first of them."""

_ONE_TAG: Final = 1
_ENDPOINTS_TAG: Final = 0
_LEADER: Final = struct.Struct(">BBBiiB")
_INT32: Final = struct.Struct(">i")

Named: TypeAlias = tuple[str | TopicId, int]
"""A partition as the client has named it."""


class Leader(NamedTuple):
    leader_id: BrokerId
    leader_epoch: LeaderEpoch

    def append(self, out: bytearray, tag: int) -> None:
        """Append the leader as the only tagged field of a partition."""
        size = _INT32.size * 2 + 1
        out += _LEADER.pack(_ONE_TAG, tag, size, self.leader_id, self.leader_epoch, 0)


class Node(NamedTuple):
    """The address of a leader, for the clients of one listener."""

    broker_id: BrokerId
    endpoint: Endpoint
    rack: str


class CurrentLeaders(NamedTuple):
    """The leaders of some partitions, and the addresses of the leaders."""

    of: Mapping[Named, Leader]
    nodes: Sequence[Node]

    def append_endpoints(self, out: bytearray) -> None:
        """Append the tagged fields of a response that has addresses: how many fields there are, and
        the addresses."""
        endpoints = bytearray()
        append_length(endpoints, len(self.nodes), flexible=True)
        for node in self.nodes:
            endpoints += _INT32.pack(node.broker_id)
            append_string(endpoints, node.endpoint.host, flexible=True)
            endpoints += _INT32.pack(node.endpoint.port)
            append_string(endpoints, node.rack or None, flexible=True)
            endpoints.append(0)
        out += bytes((_ONE_TAG, _ENDPOINTS_TAG))
        append_uvarint(out, len(endpoints))
        out += endpoints

    def and_those(self, others: "CurrentLeaders") -> "CurrentLeaders":
        """Return these leaders and the others."""
        if not others.of:
            return self
        nodes = {node.broker_id: node for node in (*self.nodes, *others.nodes)}
        return CurrentLeaders({**self.of, **others.of}, tuple(nodes.values()))


NO_LEADERS: Final = CurrentLeaders({}, ())


def current_leaders(
    metadata: MetadataCache, listener: str, partitions: Iterable[Named]
) -> CurrentLeaders:
    """Return the leaders of those partitions that have one, as this broker knows it.

    Brokers without that listener have no address there.
    """
    leaders: dict[Named, Leader] = {}
    nodes: dict[BrokerId, Node] = {}
    for topic, number in partitions:
        name = topic if isinstance(topic, str) else metadata.topic_name(topic)
        known = None if name is None else metadata.topics.get(name)
        if known is None or not 0 <= number < known.partition_count:
            continue
        partition = known.partitions[number]
        if partition.leader not in metadata.brokers:
            continue
        leaders[topic, number] = Leader(partition.leader, partition.leader_epoch)
        broker = metadata.brokers[partition.leader]
        endpoint = broker.listeners.get(listener)
        if endpoint is not None:
            nodes[partition.leader] = Node(partition.leader, endpoint, broker.rack)
    return CurrentLeaders(leaders, tuple(nodes.values())) if leaders else NO_LEADERS
