"""Rules of sessions, and of what hangs on them: broker registrations and /controller (E1, E2, B3,
rule 9).
"""

from typing import Final

import msgspec

from quorate.common.types import NO_BROKER, BrokerEpoch, BrokerId, MetadataOffset
from quorate.metadata_log import features
from quorate.metadata_log.draft import Draft, require_id
from quorate.metadata_log.image import Broker, ControllerState
from quorate.metadata_log.records import (
    BrokerAdmitted,
    BrokerRegistration,
    ControllerClaim,
    ControllerRemoved,
    LostReplica,
    OperationRefused,
    ResultCode,
    SessionClosed,
    SessionOpened,
    SessionSilences,
)
from quorate.metadata_log.rules.broker_history import note_incarnation

SILENCE_QUARTERS_MAX: Final = 4
"""A session that was silent for its whole timeout may still be open: a new leader may have given it
some more time.
"""


def session_opened(draft: Draft, offset: MetadataOffset, record: SessionOpened) -> int:
    require_id("session id", record.session_id)
    if record.timeout_ms <= 0:
        raise OperationRefused(
            ResultCode.INVALID, f"session timeout {record.timeout_ms} ms is not positive"
        )
    if draft.sessions.get(record.session_id) is not None:
        raise OperationRefused(
            ResultCode.CONDITION_FAILED, f"session {record.session_id.hex()} exists"
        )
    if record.broker_id != NO_BROKER and draft.metadata_version < features.PROVEN_WRITERS:
        # Voters that do not know the field open the session for nobody (B4).
        record = msgspec.structs.replace(record, broker_id=NO_BROKER)
    draft.sessions.put(record.session_id, record)
    return offset


def why_not_use(session: SessionOpened | None, broker_id: BrokerId) -> str | None:
    """Return why a broker that has proved its id may not use the session, or None if it may.

    A session that is not there is nobody's. One without a broker was opened before
    ``metadata_version`` 5, by an administrator, or in plain text.
    """
    if session is None or session.broker_id in (NO_BROKER, broker_id):
        return None
    return (
        f"session {session.session_id.hex()} is broker {session.broker_id}'s, "
        f"not broker {broker_id}'s"
    )


def session_closed(draft: Draft, offset: MetadataOffset, record: SessionClosed) -> int:
    """Close the session together with all that hangs on it: registration, /controller
    and results.
    """
    if draft.sessions.get(record.session_id) is None:
        return offset
    draft.sessions.remove(record.session_id)
    draft.silences.remove(record.session_id)
    draft.results.remove(record.session_id)
    for broker_id, broker in list(draft.brokers.items()):
        if broker.registration.session_id == record.session_id:
            draft.brokers.remove(broker_id)
    controller = draft.controller
    if controller is not None and controller.session_id == record.session_id:
        draft.put_controller(None)
    return offset


def session_silences(draft: Draft, offset: MetadataOffset, record: SessionSilences) -> int:
    if not draft.by_quorum:
        raise OperationRefused(
            ResultCode.INVALID, "the silence of sessions is the quorum's own to note"
        )
    for silence in record.silences:
        if not 0 <= silence.quarters <= SILENCE_QUARTERS_MAX:
            raise OperationRefused(ResultCode.INVALID, f"a silence of {silence.quarters} quarters")
        if draft.sessions.get(silence.session_id) is None:
            continue  # The session was closed meanwhile.
        if silence.quarters:
            draft.silences.put(silence.session_id, silence.quarters)
        else:
            draft.silences.remove(silence.session_id)
    return offset


def broker_registration(draft: Draft, offset: MetadataOffset, record: BrokerRegistration) -> int:
    """Register the broker. The same incarnation keeps its epoch; another one waits until the old
    session is gone (B3).
    """
    draft.require_session(record.session_id)
    if draft.writer != NO_BROKER:
        foreign = why_not_use(draft.sessions.get(record.session_id), draft.writer)
        if foreign is not None:
            raise OperationRefused(ResultCode.INVALID, foreign)
    require_id("incarnation id", record.incarnation_id)
    if record.broker_id < 0:
        raise OperationRefused(ResultCode.INVALID, f"broker id {record.broker_id} is negative")
    before = draft.brokers.get(record.broker_id)
    epoch = BrokerEpoch(offset)
    admitted = False
    lost: tuple[LostReplica, ...] = ()
    if before is not None:
        if before.registration.incarnation_id != record.incarnation_id:
            raise OperationRefused(
                ResultCode.DUPLICATE_BROKER,
                f"broker id {record.broker_id} is registered by another live process "
                f"at {before.kafka} (epoch {before.epoch})",
            )
        epoch = before.epoch
        admitted, lost = before.admitted, before.lost
    unfit = features.why_not_register(draft, record)
    if unfit is not None:
        raise OperationRefused(ResultCode.INVALID, unfit)
    draft.brokers.put(record.broker_id, Broker(record, epoch, admitted, lost))
    note_incarnation(draft, record, epoch)
    return epoch


def broker_admitted(draft: Draft, offset: MetadataOffset, record: BrokerAdmitted) -> int:
    broker = draft.brokers.get(record.broker_id)
    if broker is None or broker.epoch != record.broker_epoch:
        raise OperationRefused(
            ResultCode.STALE_BROKER_EPOCH,
            f"broker {record.broker_id} is not registered at epoch {record.broker_epoch}",
        )
    draft.brokers.put(record.broker_id, Broker(broker.registration, broker.epoch, admitted=True))
    return broker.epoch


def controller_claim(draft: Draft, offset: MetadataOffset, record: ControllerClaim) -> int:
    """Write /controller for the first broker that claims it, with the next controller epoch (E1,
    E2).
    """
    draft.require_session(record.session_id)
    broker = draft.brokers.get(record.broker_id)
    if broker is None or broker.registration.session_id != record.session_id:
        raise OperationRefused(
            ResultCode.INVALID, f"broker {record.broker_id} is not registered under this session"
        )
    if draft.controller is not None and draft.controller.broker_id >= 0:
        raise OperationRefused(
            ResultCode.CONDITION_FAILED, f"broker {draft.controller.broker_id} is the controller"
        )
    if record.controller_epoch != draft.controller_epoch + 1:
        raise OperationRefused(
            ResultCode.CONTROLLER_FENCED,
            f"controller epoch {record.controller_epoch} does not follow {draft.controller_epoch}",
        )
    draft.put_controller(
        ControllerState(record.broker_id, record.session_id, record.timestamp_ms, offset)
    )
    draft.put_controller_epoch(record.controller_epoch)
    return offset


def controller_removed(draft: Draft, offset: MetadataOffset, record: ControllerRemoved) -> int:
    controller = draft.controller
    if controller is None:
        raise OperationRefused(ResultCode.CONDITION_FAILED, "/controller is held by nobody")
    if record.broker_id not in (NO_BROKER, controller.broker_id):
        raise OperationRefused(
            ResultCode.CONDITION_FAILED, f"/controller is held by broker {controller.broker_id}"
        )
    draft.put_controller(None)
    return offset
