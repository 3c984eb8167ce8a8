"""Records, operations and transactions as frozen values, and what each of them means.

These classes are the wire form as well: ``codec`` writes a value as a MessagePack array of its
fields in the order given here, a record or condition with its tag in front. So tags and the order
of fields never change; a new field goes to the end, with a default. What makes a record valid is
decided in ``apply``.
"""

from metadata_log.records.administration import (
    ChangeNote,
    ClientQuotaSet,
    ConfigSet,
    FeatureLevel,
    ProducerIdBlock,
)
from metadata_log.records.brokers import (
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
from metadata_log.records.pipelines import (
    PipelineRemoved,
    PipelineRun,
    PipelineSet,
    PipelineTopic,
)
from metadata_log.records.record import (
    KINDS,
    Record,
    kind_of,
)
from metadata_log.records.security import (
    AclAdded,
    AclRemoved,
    DelegationTokenRemoved,
    DelegationTokenSet,
    ScramCredential,
    ScramCredentialRemoved,
    ScramCredentialSet,
)
from metadata_log.records.topics import (
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
from metadata_log.records.transactions import (
    Absent,
    AtVersion,
    Condition,
    ControllerEpochIs,
    Operation,
    OperationResult,
    ResultCode,
    SessionAlive,
    Transaction,
    TransactionResult,
)
from metadata_log.records.voters import (
    QuorumVoter,
    QuorumVoterSet,
)

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
    "PipelineTopic",
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
