"""Which rule a record falls under, and whose it is to write."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

from metadata_log.draft import Draft
from metadata_log.features import metadata_version
from metadata_log.records import (
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
    ScramCredentialRemoved,
    ScramCredentialSet,
    SessionClosed,
    SessionOpened,
    SessionSilences,
    TopicCreated,
    TopicDeletionPending,
    TopicRemoved,
)
from metadata_log.rules.access import acl_added, acl_removed
from metadata_log.rules.administration import (
    change_note,
    client_quota_set,
    config_set,
    feature_level,
    producer_id_block,
)
from metadata_log.rules.leader_and_isr import isr_change, partition_change
from metadata_log.rules.membership import (
    broker_admitted,
    broker_registration,
    controller_claim,
    controller_removed,
    session_closed,
    session_opened,
    session_silences,
)
from metadata_log.rules.partition_count import (
    partition_addition_pending,
    partition_removal_pending,
    partitions_added,
    partitions_removed,
)
from metadata_log.rules.pipelines import pipeline_removed, pipeline_set
from metadata_log.rules.quorum_voters import quorum_voter_set
from metadata_log.rules.reassignment import partition_reassignment
from metadata_log.rules.requirements import NotInForce
from metadata_log.rules.scram import scram_credential_removed, scram_credential_set
from metadata_log.rules.tokens import delegation_token_removed, delegation_token_set
from metadata_log.rules.topics import topic_created, topic_deletion_pending, topic_removed
from metadata_log.types import MetadataOffset

T = TypeVar("T")


class Rule(NamedTuple):
    """What becomes of a kind of record."""

    apply: Callable[[Draft, MetadataOffset, Any], int]
    """Write the record into the draft; returns the version of what was written.

    Raises ``Refused`` if the record breaks a rule. The draft may hold a part of it: undo it.
    """
    needs_controller: bool = False
    """Whether an operation with it must name the controller epoch it was decided in."""
    bridged: bool = False
    """Whether a live broker may write it, too, at inter_broker_protocol 1 (F6)."""


def since(
    level: int, rule: Callable[[Draft, MetadataOffset, T], int]
) -> Callable[[Draft, MetadataOffset, T], int]:
    """The rule of a kind of record that came with ``level`` of metadata_version."""

    def in_force(draft: Draft, offset: MetadataOffset, record: T) -> int:
        now = metadata_version(draft)
        if now < level:
            raise NotInForce(type(record).__name__, level, now)
        return rule(draft, offset, record)

    return in_force


RULES: Final[dict[type, Rule]] = {
    SessionOpened: Rule(session_opened),
    SessionClosed: Rule(session_closed),
    SessionSilences: Rule(session_silences),
    BrokerRegistration: Rule(broker_registration),
    BrokerAdmitted: Rule(broker_admitted, needs_controller=True),
    ControllerClaim: Rule(controller_claim),
    ControllerRemoved: Rule(controller_removed),
    TopicCreated: Rule(topic_created, needs_controller=True),
    TopicDeletionPending: Rule(topic_deletion_pending, needs_controller=True),
    TopicRemoved: Rule(topic_removed, needs_controller=True),
    PartitionChange: Rule(partition_change, needs_controller=True),
    IsrChange: Rule(isr_change),
    PartitionReassignment: Rule(since(2, partition_reassignment), needs_controller=True),
    PartitionAdditionPending: Rule(since(2, partition_addition_pending), needs_controller=True),
    PartitionsAdded: Rule(since(2, partitions_added), needs_controller=True),
    PartitionRemovalPending: Rule(since(2, partition_removal_pending), needs_controller=True),
    PartitionsRemoved: Rule(since(2, partitions_removed), needs_controller=True),
    AclAdded: Rule(since(3, acl_added), needs_controller=True, bridged=True),
    AclRemoved: Rule(since(3, acl_removed), needs_controller=True, bridged=True),
    ConfigSet: Rule(config_set, needs_controller=True, bridged=True),
    ChangeNote: Rule(since(3, change_note), needs_controller=True, bridged=True),
    FeatureLevel: Rule(feature_level, needs_controller=True),
    ProducerIdBlock: Rule(producer_id_block, needs_controller=True),
    DelegationTokenSet: Rule(since(3, delegation_token_set), needs_controller=True, bridged=True),
    DelegationTokenRemoved: Rule(
        since(3, delegation_token_removed), needs_controller=True, bridged=True
    ),
    PipelineSet: Rule(since(4, pipeline_set), needs_controller=True),
    PipelineRemoved: Rule(since(4, pipeline_removed), needs_controller=True),
    QuorumVoterSet: Rule(quorum_voter_set),
    ClientQuotaSet: Rule(since(3, client_quota_set), needs_controller=True, bridged=True),
    ScramCredentialSet: Rule(since(3, scram_credential_set), needs_controller=True, bridged=True),
    ScramCredentialRemoved: Rule(
        since(3, scram_credential_removed), needs_controller=True, bridged=True
    ),
}
