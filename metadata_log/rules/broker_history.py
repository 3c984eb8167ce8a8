"""Rules of what is remembered of brokers and of their log folders (rule 8).

A log folder that is an old copy, or has lost some of its logs, must count as lost before it counts
for anything. The broker finds that out itself before it registers, from what is noted here.
"""

from typing import Final

import msgspec

from quorate.common.types import ID_BYTES, BrokerEpoch, BrokerId, MetadataOffset
from quorate.metadata_log.draft import Draft
from quorate.metadata_log.features import BROKER_HISTORY
from quorate.metadata_log.image import BrokerHistory
from quorate.metadata_log.records import (
    BrokerRegistration,
    FolderMarks,
    OperationRefused,
    ReplicasLost,
    ResultCode,
)

LOST_REPLICAS_MAX: Final = 1_000
"""A broker that has lost more says that it may have lost all of them."""


def note_incarnation(draft: Draft, record: BrokerRegistration, epoch: BrokerEpoch) -> None:
    """Remember which incarnation of the broker was registered last.

    The mark of its folder stays while the incarnation does, also over a lost session. Older voters
    keep no such note, so metadata_version must allow it.
    """
    if draft.metadata_version < BROKER_HISTORY:
        return
    before = draft.histories.get(record.broker_id)
    same = before is not None and before.incarnation_id == record.incarnation_id
    mark = before.mark if before is not None and same else 0
    draft.histories.put(record.broker_id, BrokerHistory(record.incarnation_id, epoch, mark))


def replicas_lost(draft: Draft, offset: MetadataOffset, record: ReplicasLost) -> int:
    """Note which replicas a broker has declared as lost. It must not be admitted yet: what it does
    from then on it does with them as they are.
    """
    broker = draft.brokers.get(record.broker_id)
    if broker is None or broker.registration.session_id != record.session_id:
        raise OperationRefused(
            ResultCode.INVALID, f"broker {record.broker_id} is not registered under this session"
        )
    if len(record.replicas) > LOST_REPLICAS_MAX:
        raise OperationRefused(
            ResultCode.INVALID,
            f"{len(record.replicas)} lost replicas are more than {LOST_REPLICAS_MAX}: the broker "
            "must register with log_may_be_lost",
        )
    if any(len(one.topic_id) != ID_BYTES or one.partition < 0 for one in record.replicas):
        raise OperationRefused(ResultCode.INVALID, "a lost replica is not named properly")
    if not broker.admitted:
        draft.brokers.put(record.broker_id, msgspec.structs.replace(broker, lost=record.replicas))
    return broker.epoch


def folder_marks(draft: Draft, offset: MetadataOffset, record: FolderMarks) -> int:
    """Note how far the log folders of brokers are. A mark never falls within an incarnation."""
    if not draft.by_quorum:
        raise OperationRefused(
            ResultCode.INVALID, "the marks of log folders are the quorum's own to note"
        )
    broker_of: dict[bytes, BrokerId] = {
        broker.registration.session_id: broker_id for broker_id, broker in draft.brokers.items()
    }
    for one in record.marks:
        broker_id = broker_of.get(one.session_id)
        broker = None if broker_id is None else draft.brokers.get(broker_id)
        if broker_id is None or broker is None:
            continue  # The session was closed meanwhile, or is not a broker's.
        incarnation_id = broker.registration.incarnation_id
        before = draft.histories.get(broker_id)
        if before is None or before.incarnation_id != incarnation_id:
            before = BrokerHistory(incarnation_id, broker.epoch)
        mark = max(before.mark, one.mark)
        draft.histories.put(broker_id, BrokerHistory(incarnation_id, broker.epoch, mark))
    return offset
