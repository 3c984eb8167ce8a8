"""Which rule a record falls under, and whose it is to write."""

from collections.abc import Callable
from typing import Any

from metadata_log.draft import Draft
from metadata_log.records import (
    BrokerAdmitted,
    BrokerRegistration,
    ConfigSet,
    ControllerClaim,
    ControllerRemoved,
    FeatureLevel,
    IsrChange,
    PartitionChange,
    ProducerIdBlock,
    QuorumVoterSet,
    Record,
    SessionClosed,
    SessionOpened,
    SessionSilences,
    TopicCreated,
    TopicDeletionPending,
    TopicRemoved,
)
from metadata_log.rules.administration import config_set, feature_level, producer_id_block
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
from metadata_log.rules.quorum_voters import quorum_voter_set
from metadata_log.rules.topics import topic_created, topic_deletion_pending, topic_removed
from metadata_log.types import MetadataOffset


def apply_record(draft: Draft, offset: MetadataOffset, record: Record) -> int:
    """Write ``record`` into ``draft``; returns the version of what was written.

    Raises:
        Refused: the record breaks a rule. The draft may hold a part of it: undo it.
    """
    return _RULES[type(record)](draft, offset, record)


def needs_controller(record: Record) -> bool:
    """Whether an operation with this record must name the controller epoch it was decided in."""
    return type(record) in _CONTROLLER_ONLY


_CONTROLLER_ONLY = frozenset(
    {
        TopicCreated,
        TopicRemoved,
        TopicDeletionPending,
        PartitionChange,
        ConfigSet,
        FeatureLevel,
        ProducerIdBlock,
        BrokerAdmitted,
    }
)

_RULES: dict[type, Callable[[Draft, MetadataOffset, Any], int]] = {
    SessionOpened: session_opened,
    SessionClosed: session_closed,
    SessionSilences: session_silences,
    BrokerRegistration: broker_registration,
    BrokerAdmitted: broker_admitted,
    ControllerClaim: controller_claim,
    ControllerRemoved: controller_removed,
    TopicCreated: topic_created,
    TopicDeletionPending: topic_deletion_pending,
    TopicRemoved: topic_removed,
    PartitionChange: partition_change,
    IsrChange: isr_change,
    ConfigSet: config_set,
    FeatureLevel: feature_level,
    ProducerIdBlock: producer_id_block,
    QuorumVoterSet: quorum_voter_set,
}
