"""Partitions by name, and the results for each of them."""

from dataclasses import dataclass
from enum import Enum

from quorate.client.results.item_outcome import ItemOutcome, outcome_of
from quorate_proto.v1 import admin_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionName:
    """A partition by the name of its topic and its number."""

    topic: str
    partition: int


class ElectionType(Enum):
    """The rule by which a leader is elected (C2)."""

    PREFERRED = "preferred"
    """Elect the first assigned replica, if it is live and in sync."""

    UNCLEAN = "unclean"
    """Elect any live replica where no in-sync replica is live; records that it lacks are lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionResult(ItemOutcome):
    """The result for one partition."""

    topic: str
    partition: int

    @classmethod
    def from_proto(cls, result: admin_pb2.PartitionResult) -> "PartitionResult":
        return cls(
            topic=result.topic,
            partition=result.partition,
            **outcome_of(result),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OngoingReassignment:
    """A partition whose replicas are being moved; ``replicas`` are all that it has at the
    moment."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]

    @classmethod
    def from_proto(cls, ongoing: admin_pb2.OngoingReassignment) -> "OngoingReassignment":
        return cls(
            topic=ongoing.topic,
            partition=ongoing.partition,
            replicas=tuple(ongoing.replicas),
            adding_replicas=tuple(ongoing.adding_replicas),
            removing_replicas=tuple(ongoing.removing_replicas),
        )
