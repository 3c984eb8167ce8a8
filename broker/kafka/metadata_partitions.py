"""The partitions of a Metadata answer, encoded by hand: the one place where their number hurts.

A cluster has few distinct replica lists, so each is encoded once per answer and looked up after.
"""

import struct
from collections.abc import Container, Sequence
from typing import Final

from broker.kafka.codec import Encoded, append_uvarint
from broker.told_metadata import KnownPartition
from metadata_log.types import NO_BROKER, BrokerId
from quorate_proto.v1 import errors_pb2

_FIRST_FLEXIBLE_VERSION: Final = 9
_FIRST_VERSION_WITH_LEADER_EPOCH: Final = 7
_FIRST_VERSION_WITH_OFFLINE_REPLICAS: Final = 5

_CODE_INDEX_LEADER: Final = struct.Struct(">hii")
_CODE_INDEX_LEADER_EPOCH: Final = struct.Struct(">hiii")
_INT32: Final = struct.Struct(">i")


class PartitionEncoder:
    """For one answer: one version of Metadata, one set of live brokers."""

    def __init__(self, version: int, live: Container[BrokerId]) -> None:
        self._live = live
        self._flexible = version >= _FIRST_FLEXIBLE_VERSION
        self._with_epoch = version >= _FIRST_VERSION_WITH_LEADER_EPOCH
        self._with_offline = version >= _FIRST_VERSION_WITH_OFFLINE_REPLICAS
        self._tags = b"\0" if self._flexible else b""
        self._ids: dict[tuple[BrokerId, ...], bytes] = {}
        self._offline: dict[tuple[BrokerId, ...], bytes] = {}

    def encode(self, partitions: Sequence[KnownPartition]) -> Encoded:
        """The array of a topic's partitions, number = position."""
        out = bytearray(self._length(len(partitions)))
        for index, partition in enumerate(partitions):
            self._append(out, index, partition)
        return Encoded(out)

    def _append(self, out: bytearray, index: int, partition: KnownPartition) -> None:
        leader = partition.leader
        code = errors_pb2.NONE
        if leader not in self._live:
            leader, code = NO_BROKER, errors_pb2.LEADER_NOT_AVAILABLE
        if self._with_epoch:
            out += _CODE_INDEX_LEADER_EPOCH.pack(code, index, leader, partition.leader_epoch)
        else:
            out += _CODE_INDEX_LEADER.pack(code, index, leader)
        replicas = partition.replicas
        out += self._ids.get(replicas) or self._encode_ids(replicas)
        out += self._ids.get(partition.isr) or self._encode_ids(partition.isr)
        if self._with_offline:
            out += self._offline.get(replicas) or self._encode_offline(replicas)
        out += self._tags

    def _encode_ids(self, ids: tuple[BrokerId, ...]) -> bytes:
        encoded = self._length(len(ids)) + b"".join(map(_INT32.pack, ids))
        self._ids[ids] = encoded
        return encoded

    def _encode_offline(self, replicas: tuple[BrokerId, ...]) -> bytes:
        encoded = self._encode_ids(tuple(one for one in replicas if one not in self._live))
        self._offline[replicas] = encoded
        return encoded

    def _length(self, length: int) -> bytes:
        if not self._flexible:
            return _INT32.pack(length)
        out = bytearray()
        append_uvarint(out, length + 1)
        return bytes(out)
