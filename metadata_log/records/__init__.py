"""Records, operations and transactions as frozen values, and the meaning of each.

These classes are the wire form as well: ``codec`` writes a value as a MessagePack array of its
fields in the order given here, and a record or condition with its tag in front. So tags and the
order of fields never change; a new field goes to the end, with a default. ``apply`` decides whether
a record is valid.
"""

from quorate.metadata_log.records.administration import (
    ChangeNote,
    ClientQuotaSet,
    ConfigSet,
    FeatureLevel,
    ProducerIdBlock,
)
from quorate.metadata_log.records.brokers import (
    BrokerAdmitted,
    BrokerRegistration,
    ControllerClaim,
    ControllerRemoved,
    Listener,
    SessionClosed,
    SessionOpened,
    SessionSilence,
    SessionSilences,
)
from quorate.metadata_log.records.pipelines import (
    PipelineRemoved,
    PipelineRun,
    PipelineSet,
    PipelineTopicOffsets,
)
from quorate.metadata_log.records.record import KINDS, Record, kind_of
from quorate.metadata_log.records.security import (
    AclAdded,
    AclRemoved,
    DelegationTokenRemoved,
    DelegationTokenSet,
    ScramCredential,
    ScramCredentialRemoved,
    ScramCredentialSet,
)
from quorate.metadata_log.records.topics import (
    IsrChange,
    IsrMember,
    NewPartition,
    PartitionAdditionPending,
    PartitionChange,
    PartitionReassignment,
    PartitionRemovalPending,
    PartitionsAdded,
    PartitionsRemoved,
    TopicCreated,
    TopicDeletionPending,
    TopicRemoved,
)
from quorate.metadata_log.records.transactions import (
    Absent,
    AtVersion,
    Condition,
    ControllerEpochIs,
    Operation,
    OperationRefused,
    OperationResult,
    ResultCode,
    SessionAlive,
    Transaction,
    TransactionResult,
)
from quorate.metadata_log.records.voters import QuorumVoter, QuorumVoterSet

__all__ = [
    "KINDS",
    "Absent",
    "AclAdded",
    "AclRemoved",
    "AtVersion",
    "BrokerAdmitted",
    "BrokerRegistration",
    "ChangeNote",
    "ClientQuotaSet",
    "Condition",
    "ConfigSet",
    "ControllerClaim",
    "ControllerEpochIs",
    "ControllerRemoved",
    "DelegationTokenRemoved",
    "DelegationTokenSet",
    "FeatureLevel",
    "IsrChange",
    "IsrMember",
    "Listener",
    "NewPartition",
    "Operation",
    "OperationRefused",
    "OperationResult",
    "PartitionAdditionPending",
    "PartitionChange",
    "PartitionReassignment",
    "PartitionRemovalPending",
    "PartitionsAdded",
    "PartitionsRemoved",
    "PipelineRemoved",
    "PipelineRun",
    "PipelineSet",
    "PipelineTopicOffsets",
    "ProducerIdBlock",
    "QuorumVoter",
    "QuorumVoterSet",
    "Record",
    "ResultCode",
    "ScramCredential",
    "ScramCredentialRemoved",
    "ScramCredentialSet",
    "SessionAlive",
    "SessionClosed",
    "SessionOpened",
    "SessionSilence",
    "SessionSilences",
    "TopicCreated",
    "TopicDeletionPending",
    "TopicRemoved",
    "Transaction",
    "TransactionResult",
    "kind_of",
]
