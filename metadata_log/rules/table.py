"""The table of rules: for each kind of record how it is applied, and who may write it."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from quorate.common.types import BrokerId, MetadataOffset
from quorate.metadata_log.draft import Draft
from quorate.metadata_log.image import LEAST_LEVEL
from quorate.metadata_log.records import (
    AclAdded,
    AclRemoved,
    BrokerAdmitted,
    BrokerRegistration,
    ChangeNote,
    ClientQuotaSet,
    ConfigSet,
    ControllerClaim,
    ControllerRemoved,
    DelegationTokenRemoved,
    DelegationTokenSet,
    FeatureLevel,
    FolderMarks,
    IpQuotaSet,
    IsrChange,
    PartitionAdditionPending,
    PartitionChange,
    PartitionReassignment,
    PartitionRemovalPending,
    PartitionsAdded,
    PartitionsRemoved,
    PipelineRemoved,
    PipelineSet,
    ProducerIdBlock,
    QuorumVoterSet,
    ReplicasLost,
    ScramCredentialRemoved,
    ScramCredentialSet,
    ScramDecoyKeySet,
    SessionClosed,
    SessionOpened,
    SessionSilences,
    TopicCreated,
    TopicDeletionPending,
    TopicRemoved,
)
from quorate.metadata_log.rules.administration import (
    acl_added,
    acl_removed,
    client_quota_set,
    config_set,
    delegation_token_removed,
    delegation_token_set,
    feature_level,
    ip_quota_set,
    producer_id_block,
    scram_credential_removed,
    scram_credential_set,
    scram_decoy_key_set,
)
from quorate.metadata_log.rules.broker_history import folder_marks, replicas_lost
from quorate.metadata_log.rules.leader_and_isr import isr_change, partition_change
from quorate.metadata_log.rules.membership import (
    broker_admitted,
    broker_registration,
    controller_claim,
    controller_removed,
    session_closed,
    session_opened,
    session_silences,
)
from quorate.metadata_log.rules.pipelines import pipeline_removed, pipeline_set
from quorate.metadata_log.rules.quorum_voters import quorum_voter_set
from quorate.metadata_log.rules.reassignment import partition_reassignment
from quorate.metadata_log.rules.topics import (
    partition_addition_pending,
    partition_removal_pending,
    partitions_added,
    partitions_removed,
    topic_created,
    topic_deletion_pending,
    topic_removed,
)


class Rule(NamedTuple):
    """The rule for one kind of record: how it is applied, and who may write it."""

    apply: Callable[[Draft, MetadataOffset, Any], int] | None
    """Writes the record into the draft and returns the version of what it wrote.

    It raises ``OperationRefused`` if the record breaks a rule. The draft may then hold a part of
    the record, which the caller undoes. None is for records that only stand in the log.
    """
    needs_controller: bool = False
    """Whether an operation with the record must name the controller epoch it was decided in."""
    bridged: bool = False
    """Whether a live broker may write the record, too, at inter_broker_protocol 1 (F6)."""
    since: int = LEAST_LEVEL
    """The level of metadata_version that brought this kind of record."""
    names_broker: Callable[[Any], BrokerId] | None = None
    """Returns the broker in whose name the record is. A broker that has proved its id writes it in
    its own name alone. Without it, and if not ``needs_controller``, the quorum alone writes it.
    """
    handed_over: bool = False
    """Whether the controller may write the record in the name of any broker: it hands its office
    over with a removal and a claim.
    """


def _broker_id(record: Any) -> BrokerId:  # noqa: ANN401 - records that have a broker_id
    return BrokerId(record.broker_id)


def _leader(record: IsrChange) -> BrokerId:
    return record.leader


RULES: Final[dict[type, Rule]] = {
    SessionOpened: Rule(session_opened),
    SessionClosed: Rule(session_closed),
    SessionSilences: Rule(session_silences),
    BrokerRegistration: Rule(broker_registration, names_broker=_broker_id),
    BrokerAdmitted: Rule(broker_admitted, needs_controller=True),
    ReplicasLost: Rule(replicas_lost, since=5, names_broker=_broker_id),
    FolderMarks: Rule(folder_marks, since=5),
    ControllerClaim: Rule(controller_claim, names_broker=_broker_id, handed_over=True),
    ControllerRemoved: Rule(controller_removed, names_broker=_broker_id, handed_over=True),
    TopicCreated: Rule(topic_created, needs_controller=True),
    TopicDeletionPending: Rule(topic_deletion_pending, needs_controller=True),
    TopicRemoved: Rule(topic_removed, needs_controller=True),
    PartitionChange: Rule(partition_change, needs_controller=True),
    IsrChange: Rule(isr_change, names_broker=_leader),
    PartitionReassignment: Rule(partition_reassignment, needs_controller=True, since=2),
    PartitionAdditionPending: Rule(partition_addition_pending, needs_controller=True, since=2),
    PartitionsAdded: Rule(partitions_added, needs_controller=True, since=2),
    PartitionRemovalPending: Rule(partition_removal_pending, needs_controller=True, since=2),
    PartitionsRemoved: Rule(partitions_removed, needs_controller=True, since=2),
    AclAdded: Rule(acl_added, needs_controller=True, bridged=True, since=3),
    AclRemoved: Rule(acl_removed, needs_controller=True, bridged=True, since=3),
    ConfigSet: Rule(config_set, needs_controller=True, bridged=True),
    ChangeNote: Rule(None, needs_controller=True, bridged=True, since=3),
    FeatureLevel: Rule(feature_level, needs_controller=True),
    ProducerIdBlock: Rule(producer_id_block, needs_controller=True),
    DelegationTokenSet: Rule(delegation_token_set, needs_controller=True, bridged=True, since=3),
    DelegationTokenRemoved: Rule(
        delegation_token_removed, needs_controller=True, bridged=True, since=3
    ),
    PipelineSet: Rule(pipeline_set, needs_controller=True, since=4),
    PipelineRemoved: Rule(pipeline_removed, needs_controller=True, since=4),
    QuorumVoterSet: Rule(quorum_voter_set),
    ClientQuotaSet: Rule(client_quota_set, needs_controller=True, bridged=True, since=3),
    ScramCredentialSet: Rule(scram_credential_set, needs_controller=True, bridged=True, since=3),
    ScramCredentialRemoved: Rule(
        scram_credential_removed, needs_controller=True, bridged=True, since=3
    ),
    ScramDecoyKeySet: Rule(scram_decoy_key_set, needs_controller=True, since=6),
    IpQuotaSet: Rule(ip_quota_set, needs_controller=True, bridged=True, since=6),
}
