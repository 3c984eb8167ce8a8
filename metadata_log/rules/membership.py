"""Sessions, and what hangs on them: broker registrations and /controller (E1, E2, B3, rule 9)."""

from typing import Final

from metadata_log import features
from metadata_log.draft import Draft
from metadata_log.image import Broker, Controller
from metadata_log.records import (
    BrokerAdmitted,
    BrokerRegistration,
    ControllerClaim,
    ControllerRemoved,
    ResultCode,
    SessionClosed,
    SessionOpened,
    SessionSilences,
)
from metadata_log.rules.requirements import Refused, require_id, require_session
from metadata_log.types import NO_BROKER, BrokerEpoch, MetadataOffset

SILENCE_QUARTERS_MAX: Final = 4
"""A session that has been silent for its whole timeout is not expired yet: a new leader may have
given it some more time."""


def session_opened(draft: Draft, offset: MetadataOffset, record: SessionOpened) -> int:
    require_id("session id", record.session_id)
    if record.timeout_ms <= 0:
        raise Refused(ResultCode.INVALID, f"session timeout {record.timeout_ms} ms is not positive")
    if draft.sessions.get(record.session_id) is not None:
        raise Refused(ResultCode.CONDITION_FAILED, f"session {record.session_id.hex()} exists")
    draft.sessions.put(record.session_id, record)
    return offset


def session_closed(draft: Draft, offset: MetadataOffset, record: SessionClosed) -> int:
    """The session and all that hangs on it go together: registration, /controller, results."""
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
        draft.controller = None
    return offset


def session_silences(draft: Draft, offset: MetadataOffset, record: SessionSilences) -> int:
    if not draft.by_quorum:
        raise Refused(ResultCode.INVALID, "the silence of sessions is the quorum's own to note")
    for silence in record.silences:
        if not 0 <= silence.quarters <= SILENCE_QUARTERS_MAX:
            raise Refused(ResultCode.INVALID, f"a silence of {silence.quarters} quarters")
        if draft.sessions.get(silence.session_id) is None:
            continue  # Closed meanwhile.
        if silence.quarters:
            draft.silences.put(silence.session_id, silence.quarters)
        else:
            draft.silences.remove(silence.session_id)
    return offset


def broker_registration(draft: Draft, offset: MetadataOffset, record: BrokerRegistration) -> int:
    """Same incarnation, same epoch; another one waits until the old session is gone (B3)."""
    require_session(draft, record.session_id)
    require_id("incarnation id", record.incarnation_id)
    if record.broker_id < 0:
        raise Refused(ResultCode.INVALID, f"broker id {record.broker_id} is negative")
    before = draft.brokers.get(record.broker_id)
    epoch = BrokerEpoch(offset)
    admitted = False
    if before is not None:
        if before.registration.incarnation_id != record.incarnation_id:
            raise Refused(
                ResultCode.DUPLICATE_BROKER,
                f"broker id {record.broker_id} is registered by another live process "
                f"at {before.kafka} (epoch {before.epoch})",
            )
        epoch = before.epoch
        admitted = before.admitted
    unfit = features.why_not_register(draft, record)
    if unfit is not None:
        raise Refused(ResultCode.INVALID, unfit)
    draft.brokers.put(record.broker_id, Broker(record, epoch, admitted))
    return epoch


def broker_admitted(draft: Draft, offset: MetadataOffset, record: BrokerAdmitted) -> int:
    broker = draft.brokers.get(record.broker_id)
    if broker is None or broker.epoch != record.broker_epoch:
        raise Refused(
            ResultCode.STALE_BROKER_EPOCH,
            f"broker {record.broker_id} is not registered at epoch {record.broker_epoch}",
        )
    draft.brokers.put(record.broker_id, Broker(broker.registration, broker.epoch, admitted=True))
    return broker.epoch


def controller_claim(draft: Draft, offset: MetadataOffset, record: ControllerClaim) -> int:
    """First to claim wins, one epoch up (E1, E2)."""
    require_session(draft, record.session_id)
    broker = draft.brokers.get(record.broker_id)
    if broker is None or broker.registration.session_id != record.session_id:
        raise Refused(
            ResultCode.INVALID, f"broker {record.broker_id} is not registered under this session"
        )
    if draft.controller is not None and draft.controller.broker_id >= 0:
        raise Refused(
            ResultCode.CONDITION_FAILED, f"broker {draft.controller.broker_id} is the controller"
        )
    if record.controller_epoch != draft.controller_epoch + 1:
        raise Refused(
            ResultCode.CONTROLLER_FENCED,
            f"controller epoch {record.controller_epoch} does not follow {draft.controller_epoch}",
        )
    draft.controller = Controller(record.broker_id, record.session_id, record.timestamp_ms, offset)
    draft.controller_epoch = record.controller_epoch
    return offset


def controller_removed(draft: Draft, offset: MetadataOffset, record: ControllerRemoved) -> int:
    controller = draft.controller
    if controller is None:
        raise Refused(ResultCode.CONDITION_FAILED, "/controller is held by nobody")
    if record.broker_id not in (NO_BROKER, controller.broker_id):
        raise Refused(
            ResultCode.CONDITION_FAILED, f"/controller is held by broker {controller.broker_id}"
        )
    draft.controller = None
    return offset
