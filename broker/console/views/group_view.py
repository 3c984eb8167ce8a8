"""A consumer group: its members, what each has, and how far behind it is. Pure."""

import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from quorate.broker.kafka.wire.codec import Message
from quorate.common.types import TopicPartition

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
ASSIGNED_MAX: Final = 100_000
"""The most partitions of one member's assignment that are read."""


class MemberRow(NamedTuple):
    """One member of a group."""

    member_id: str
    client_id: str
    client_host: str
    instance_id: str
    partitions: frozenset[TopicPartition]
    detail: str = ""


class GroupView(NamedTuple):
    """A group as its coordinator describes it."""

    group: str
    state: str
    kind: str
    protocol: str
    members: tuple[MemberRow, ...]


class PartitionRow(NamedTuple):
    """The progress of a group in one partition. ``lag`` is None if an offset is missing."""

    tp: TopicPartition
    committed: int | None
    end: int | None
    member: str

    @property
    def lag(self) -> int | None:
        if self.committed is None or self.end is None:
            return None
        return max(0, self.end - self.committed)


def classic_group(described: Message) -> GroupView:
    """Return a group of the classic protocol, from an item of DescribeGroups."""
    return GroupView(
        described["group_id"],
        described["group_state"],
        "classic",
        described["protocol_data"],
        tuple(
            MemberRow(
                one["member_id"],
                one["client_id"],
                one["client_host"],
                one["group_instance_id"] or "",
                frozenset(classic_assignment(bytes(one["member_assignment"] or b""))),
            )
            for one in described["members"]
        ),
    )


def consumer_group(described: Message) -> GroupView:
    """Return a group of the consumer protocol (KIP-848), from an item of ConsumerGroupDescribe."""
    return GroupView(
        described["group_id"],
        described["group_state"],
        "consumer",
        described["assignor_name"],
        tuple(
            MemberRow(
                one["member_id"],
                one["client_id"],
                one["client_host"],
                one["instance_id"] or "",
                frozenset(_assigned(one["assignment"])),
                f"epoch {one['member_epoch']}",
            )
            for one in described["members"]
        ),
    )


def _assigned(assignment: Message) -> Iterator[TopicPartition]:
    for topic in assignment["topic_partitions"]:
        for number in topic["partitions"]:
            yield TopicPartition(topic["topic_name"], number)


def classic_assignment(data: bytes) -> list[TopicPartition]:
    """Return the partitions of an assignment in the format of Kafka's consumers.

    A client wrote it, so what is not in that format is an empty list.
    """
    found: list[TopicPartition] = []
    try:
        (topics,) = _INT32.unpack_from(data, 2)
        at = 6
        for _ in range(topics):
            (length,) = _INT16.unpack_from(data, at)
            name = data[at + 2 : at + 2 + length].decode()
            at += 2 + length
            (count,) = _INT32.unpack_from(data, at)
            at += 4
            for _ in range(count):
                found.append(TopicPartition(name, _INT32.unpack_from(data, at)[0]))
                at += 4
            if length < 0 or len(found) > ASSIGNED_MAX:
                return []
    except (struct.error, UnicodeDecodeError):
        return []
    return found


def committed_of(answer: Message) -> dict[TopicPartition, int]:
    """Return the committed offsets of the first group of an OffsetFetch response."""
    return {
        TopicPartition(topic["name"], one["partition_index"]): one["committed_offset"]
        for group in answer["groups"][:1]
        for topic in group["topics"]
        for one in topic["partitions"]
        if not one["error_code"] and one["committed_offset"] >= 0
    }


def partition_rows(
    group: GroupView, committed: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> list[PartitionRow]:
    """Return the partitions of a group, those furthest behind first."""
    owners = {tp: member for member in group.members for tp in member.partitions}
    rows = [
        PartitionRow(
            tp,
            committed.get(tp),
            ends.get(tp),
            owners[tp].client_id if tp in owners else "",
        )
        for tp in {*committed, *owners}
    ]
    return sorted(rows, key=lambda one: (-(one.lag or 0), one.tp))


def lag_of(rows: Iterable[PartitionRow]) -> int:
    """Return the lag over all partitions in which it is known."""
    return sum(one.lag or 0 for one in rows)
