"""Elects leaders and reassigns replicas."""

from collections.abc import Mapping, Sequence
from typing import Final

from quorate.client.call_steps import Steps, ToController
from quorate.client.calls.naming import by_topic
from quorate.client.results import ElectionType, OngoingReassignment, PartitionName, PartitionResult
from quorate_proto.v1 import admin_pb2

_ELECTION_TYPES: Final = {
    ElectionType.PREFERRED: admin_pb2.ELECTION_PREFERRED,
    ElectionType.UNCLEAN: admin_pb2.ELECTION_UNCLEAN,
}


def elect_leaders(
    election_type: ElectionType, partitions: Sequence[PartitionName] | None = None
) -> Steps[list[PartitionResult]]:
    """Elect leaders; return one result per partition.

    None stands for all partitions; then those that need no election have no result.
    """
    request = admin_pb2.ElectLeadersRequest(
        election_type=_ELECTION_TYPES[election_type],
        topics=by_topic(partitions or ()),
        all_partitions=partitions is None,
    )
    answer: admin_pb2.ElectLeadersResponse = yield ToController(
        "ElectLeaders", request, "electing leaders"
    )
    return [PartitionResult.from_proto(result) for result in answer.partitions]


def alter_partition_reassignments(
    targets: Mapping[PartitionName, Sequence[int] | None],
    *,
    allow_replication_factor_change: bool = True,
) -> Steps[list[PartitionResult]]:
    """Move each partition to its target replicas, the preferred one first; None cancels a move.

    Return one result per partition once the move is accepted. The moves themselves take time, see
    ``list_partition_reassignments``.
    """
    request = admin_pb2.AlterPartitionReassignmentsRequest(
        partitions=[
            admin_pb2.WantedReassignment(
                topic=name.topic,
                partition=name.partition,
                replicas=target or (),
                cancel=target is None,
            )
            for name, target in targets.items()
        ],
        allow_replication_factor_change=allow_replication_factor_change,
    )
    answer: admin_pb2.AlterPartitionReassignmentsResponse = yield ToController(
        "AlterPartitionReassignments", request, "moving replicas"
    )
    return [PartitionResult.from_proto(result) for result in answer.partitions]


def list_partition_reassignments(
    partitions: Sequence[PartitionName] | None = None,
) -> Steps[list[OngoingReassignment]]:
    """Return the moves in progress, of ``partitions`` or of all partitions, sorted."""
    request = admin_pb2.ListPartitionReassignmentsRequest(
        all=partitions is None,
        partitions=[
            admin_pb2.PartitionRef(topic=name.topic, partition=name.partition)
            for name in partitions or ()
        ],
    )
    answer: admin_pb2.ListPartitionReassignmentsResponse = yield ToController(
        "ListPartitionReassignments", request, "listing reassignments"
    )
    return [OngoingReassignment.from_proto(one) for one in answer.partitions]
