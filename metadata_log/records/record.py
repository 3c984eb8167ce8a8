"""All kinds of records there are."""

import re
from typing import Final, get_args

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
    SessionClosed,
    SessionOpened,
    SessionSilences,
)
from metadata_log.records.pipelines import (
    PipelineRemoved,
    PipelineSet,
)
from metadata_log.records.security import (
    AclAdded,
    AclRemoved,
    DelegationTokenRemoved,
    DelegationTokenSet,
    ScramCredentialRemoved,
    ScramCredentialSet,
)
from metadata_log.records.topics import (
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
from metadata_log.records.voters import (
    QuorumVoterSet,
)

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
)

_KINDS: Final = {
    kind: re.sub("(?<=.)([A-Z])", r"_\1", kind.__name__).lower() for kind in get_args(Record)
}


KINDS: Final = frozenset(_KINDS.values())
"""All there are, by name."""


def kind_of(record: Record) -> str:
    """Its kind as watches name it: "isr_change"."""
    return _KINDS[type(record)]
