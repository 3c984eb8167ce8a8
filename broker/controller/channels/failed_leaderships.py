"""What a broker answers for single partitions of a control request, and which elections have failed
by that (C18, C21). It has no side effects.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from quorate.common.types import BrokerId, TopicIdPartition, TopicPartition
from quorate.metadata_log.image import Image
from quorate_proto.v1 import control_pb2, errors_pb2

_FAULTS: Final = frozenset({errors_pb2.KAFKA_STORAGE_ERROR, errors_pb2.UNKNOWN_SERVER_ERROR})
"""The error codes of single partitions that need an operator. All other codes mean that a newer
request was applied first."""

Outcomes = Iterable[control_pb2.PartitionOutcome]


def faults_among(outcomes: Outcomes) -> list[control_pb2.PartitionOutcome]:
    """Return the outcomes that need an operator."""
    return [outcome for outcome in outcomes if outcome.error_code in _FAULTS]


class FailedLeaderships:
    """The partitions whose newest leadership one broker could not take up."""

    def __init__(self, broker_id: BrokerId) -> None:
        self._broker_id = broker_id
        self._failed: dict[TopicPartition, control_pb2.PartitionOutcome] = {}

    @property
    def held(self) -> Sequence[control_pb2.PartitionOutcome]:
        """The faults that still hold. The success of other partitions does not end them."""
        return tuple(self._failed.values())

    def record(
        self,
        image: Image,
        outcomes: Sequence[control_pb2.PartitionOutcome],
        *,
        about_all: bool = False,
    ) -> list[TopicIdPartition]:
        """Record the answer to one LeaderAndIsr. One ``about_all`` partitions may name only those
        that failed.

        Return the partitions that the broker was elected to lead, by ``image``, and cannot lead.
        """
        new = {_place(one): one for one in faults_among(outcomes)}
        answered = {_place(one) for one in outcomes}
        kept = {} if about_all else self._failed
        held = {tp: one for tp, one in kept.items() if tp not in answered} | new
        self._failed = {tp: one for tp, one in held.items() if self._hosts(image, tp)}
        return [
            TopicIdPartition(image.topics[tp.topic].topic_id, tp.partition)
            for tp in new
            if (leaf := image.partition(tp)) is not None and leaf.leader == self._broker_id
        ]

    def _hosts(self, image: Image, tp: TopicPartition) -> bool:
        leaf = image.partition(tp)
        return leaf is not None and self._broker_id in leaf.replicas


def _place(outcome: control_pb2.PartitionOutcome) -> TopicPartition:
    return TopicPartition(outcome.topic, outcome.partition)
