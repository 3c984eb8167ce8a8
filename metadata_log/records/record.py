"""The union of all kinds of records, and their names."""

import re
from typing import Final, get_args

from quorate.metadata_log.records.administration import (
    ChangeNote,
    ClientQuotaSet,
    ConfigSet,
    FeatureLevel,
    IpQuotaSet,
    ProducerIdBlock,
)
from quorate.metadata_log.records.brokers import (
    BrokerAdmitted,
    BrokerRegistration,
    ControllerClaim,
    ControllerRemoved,
    FolderMarks,
    ReplicasLost,
    SessionClosed,
    SessionOpened,
    SessionSilences,
)
from quorate.metadata_log.records.pipelines import PipelineRemoved, PipelineSet
from quorate.metadata_log.records.security import (
    AclAdded,
    AclRemoved,
    DelegationTokenRemoved,
    DelegationTokenSet,
    ScramCredentialRemoved,
    ScramCredentialSet,
    ScramDecoyKeySet,
)
from quorate.metadata_log.records.topics import (
    IsrChange,
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
from quorate.metadata_log.records.voters import QuorumVoterSet

Record = (
    SessionOpened
    | SessionClosed
    | ControllerClaim
    | ControllerRemoved
    | BrokerRegistration
    | BrokerAdmitted
    | TopicCreated
    | TopicRemoved
    | TopicDeletionPending
    | PartitionChange
    | IsrChange
    | ConfigSet
    | AclAdded
    | AclRemoved
    | FeatureLevel
    | ProducerIdBlock
    | QuorumVoterSet
    | SessionSilences
    | PartitionReassignment
    | PartitionAdditionPending
    | PartitionsAdded
    | PartitionRemovalPending
    | PartitionsRemoved
    | ClientQuotaSet
    | ScramCredentialSet
    | ScramCredentialRemoved
    | ChangeNote
    | DelegationTokenSet
    | DelegationTokenRemoved
    | PipelineSet
    | PipelineRemoved
    | ReplicasLost
    | FolderMarks
    | ScramDecoyKeySet
    | IpQuotaSet
)

_KINDS: Final = {
    kind: re.sub("(?<=.)([A-Z])", r"_\1", kind.__name__).lower() for kind in get_args(Record)
}


KINDS: Final = frozenset(_KINDS.values())
"""The names of all kinds."""


def kind_of(record: Record) -> str:
    """Return the kind of the record as watches name it, for example "isr_change"."""
    return _KINDS[type(record)]
