"""Sessions, broker registrations and /controller: who is alive, and who holds office."""

import msgspec
import pytest

from quorate.common.types import NO_BROKER, BrokerId, ControllerEpoch, Endpoint, SessionId
from quorate.metadata_log.features import NEWEST_METADATA_VERSION
from quorate.metadata_log.records import (
    BrokerRegistration,
    ControllerClaim,
    ControllerRemoved,
    Record,
    ResultCode,
    SessionClosed,
    SessionOpened,
)
from tests.support.metadata import MetadataLogBuilder, session_of

ONE, TWO = BrokerId(1), BrokerId(2)


@pytest.fixture
def log() -> MetadataLogBuilder:
    """Brokers 1 and 2 are registered; nobody is controller yet."""
    log = MetadataLogBuilder()
    log.start_broker(1)
    log.start_broker(2)
    return log


def claim(broker_id: int, epoch: int, session: SessionId | None = None) -> ControllerClaim:
    return ControllerClaim(
        broker_id=BrokerId(broker_id),
        session_id=session or session_of(broker_id),
        timestamp_ms=1_700_000_000_000,
        controller_epoch=ControllerEpoch(epoch),
    )


def registration(broker_id: int, session: SessionId, incarnation: bytes) -> BrokerRegistration:
    return BrokerRegistration(
        broker_id=BrokerId(broker_id),
        session_id=session,
        incarnation_id=incarnation,
        kafka=Endpoint("host", 1),
        grpc=Endpoint("host", 2),
        metadata_version_max=NEWEST_METADATA_VERSION,
    )


def code(log: MetadataLogBuilder, record: Record) -> ResultCode:
    return log.write(record).results[0].code


# --- /controller --------------------------------------------------------------------------------


def test_e1_first_claim_wins_and_the_others_are_told_who_it_was(log: MetadataLogBuilder) -> None:
    assert log.image.controller_id == NO_BROKER
    assert code(log, claim(2, 1)) is ResultCode.OK
    loser = log.write(claim(1, 1)).results[0]
    assert loser.code is ResultCode.CONDITION_FAILED
    assert "broker 2 is the controller" in loser.detail
    assert log.image.controller is not None
    assert log.image.controller.broker_id == 2
    assert log.image.controller.timestamp_ms == 1_700_000_000_000


def test_e2_epochs_begin_at_one_grow_by_one_and_outlive_the_controller(
    log: MetadataLogBuilder,
) -> None:
    for expected, broker_id in enumerate((1, 2, 1), start=1):
        for wrong in (expected - 1, expected + 1):
            assert code(log, claim(broker_id, wrong)) is ResultCode.CONTROLLER_FENCED
        assert code(log, claim(broker_id, expected)) is ResultCode.OK
        assert log.image.controller_epoch == expected
        code(log, ControllerRemoved(broker_id=NO_BROKER))
        assert log.image.controller is None
        assert log.image.controller_epoch == expected


def test_e1_claim_needs_a_live_session_and_a_registration_under_it(
    log: MetadataLogBuilder,
) -> None:
    assert code(log, claim(9, 1)) is ResultCode.SESSION_GONE
    assert code(log, claim(1, 1, session=session_of(2))) is ResultCode.INVALID
    log.write(SessionOpened(session_id=session_of(3), timeout_ms=1))
    assert code(log, claim(3, 1)) is ResultCode.INVALID


def test_e5_removing_the_controller_by_hand_makes_room_for_the_next(
    log: MetadataLogBuilder,
) -> None:
    assert code(log, ControllerRemoved(broker_id=NO_BROKER)) is ResultCode.CONDITION_FAILED
    log.elect_controller(1)
    assert code(log, ControllerRemoved(broker_id=TWO)) is ResultCode.CONDITION_FAILED
    assert log.image.controller_id == 1
    assert code(log, ControllerRemoved(broker_id=ONE)) is ResultCode.OK
    assert code(log, claim(2, 2)) is ResultCode.OK


def test_e5_handing_over_is_one_transaction_with_one_epoch(log: MetadataLogBuilder) -> None:
    log.elect_controller(1)
    removed = ControllerRemoved(broker_id=ONE)
    refused = log.write(removed, claim(9, 2))
    assert not refused.ok
    assert log.image.controller_id == 1
    assert log.write(removed, claim(2, 2)).ok
    assert (log.image.controller_id, log.image.controller_epoch) == (2, 2)


def test_e5_controllers_session_takes_the_office_along(log: MetadataLogBuilder) -> None:
    log.elect_controller(1)
    log.stop_broker(2)
    assert log.image.controller_id == 1
    log.stop_broker(1)
    assert log.image.controller is None
    assert not log.image.brokers


# --- registrations ------------------------------------------------------------------------------


def test_b3_scenario_10_same_incarnation_keeps_its_epoch_and_a_new_one_gets_a_greater(
    log: MetadataLogBuilder,
) -> None:
    first = log.image.brokers[ONE]
    again = log.write(first.registration).results[0]
    assert (again.code, again.version) == (ResultCode.OK, first.epoch)
    log.stop_broker(1)
    log.start_broker(1, incarnation=1)
    assert log.image.brokers[ONE].epoch > first.epoch
    assert log.image.brokers[ONE].epoch == log.image.max_broker_epoch


def test_b3_epoch_is_the_metadata_offset_of_the_registration(log: MetadataLogBuilder) -> None:
    for _ in range(3):
        log.skip_offset()
    result = log.start_broker(3)
    epoch: int = log.image.brokers[BrokerId(3)].epoch
    assert result.results[0].version == epoch
    assert result.offset == epoch


def test_second_process_with_a_live_brokers_id_is_refused(log: MetadataLogBuilder) -> None:
    second = session_of(1, incarnation=1)
    log.write(SessionOpened(session_id=second, timeout_ms=6_000))
    refused = log.write(registration(1, second, b"other process...")).results[0]
    assert refused.code is ResultCode.DUPLICATE_BROKER
    assert "kafka1:9092" in refused.detail
    assert log.image.brokers[ONE].registration.session_id == session_of(1)


def test_registration_needs_a_live_session_and_sane_ids(log: MetadataLogBuilder) -> None:
    live, process = session_of(1), b"process 00000000"
    assert code(log, registration(5, session_of(5), process)) is ResultCode.SESSION_GONE
    assert code(log, registration(-1, live, process)) is ResultCode.INVALID
    assert code(log, registration(5, live, b"short")) is ResultCode.INVALID


# --- sessions -----------------------------------------------------------------------------------


def test_session_id_and_timeout_are_checked(log: MetadataLogBuilder) -> None:
    short = SessionOpened(session_id=SessionId(b"x"), timeout_ms=1)
    assert code(log, short) is ResultCode.INVALID
    for timeout_ms in (0, -1):
        hasty = SessionOpened(session_id=session_of(9), timeout_ms=timeout_ms)
        assert code(log, hasty) is ResultCode.INVALID
    taken = SessionOpened(session_id=session_of(1), timeout_ms=1)
    assert code(log, taken) is ResultCode.CONDITION_FAILED


def test_closing_a_session_twice_is_no_error(log: MetadataLogBuilder) -> None:
    assert log.stop_broker(1).ok
    assert log.stop_broker(1).ok


def test_rule_9_a_session_takes_along_only_what_hangs_on_it(log: MetadataLogBuilder) -> None:
    log.elect_controller(1)
    log.stop_broker(2)
    assert BrokerId(1) in log.image.brokers
    assert BrokerId(2) not in log.image.brokers
    assert log.image.controller_id == 1


def test_rule_9_late_expiry_cannot_hit_the_next_incarnation(log: MetadataLogBuilder) -> None:
    """Expiry names the session it was proposed for (rule 9)."""
    log.elect_controller(1)
    log.stop_broker(1)
    log.start_broker(1, incarnation=1)
    log.elect_controller(1, incarnation=1)
    image = log.image
    late = log.stop_broker(1, incarnation=0)
    assert late.ok
    assert log.image.brokers == image.brokers
    assert log.image.controller == image.controller


def test_registration_moves_to_the_renewed_session_of_its_process(
    log: MetadataLogBuilder,
) -> None:
    """A process that lost sight of its session opens another one; the old one expires later."""
    renewed = session_of(1, incarnation=9)
    log.write(SessionOpened(session_id=renewed, timeout_ms=6_000))
    before = log.image.brokers[ONE]
    moved = msgspec.structs.replace(before.registration, session_id=renewed)
    assert log.write(moved).ok
    log.stop_broker(1)
    assert log.image.brokers[ONE].epoch == before.epoch
    log.stop_broker(1, incarnation=9)
    assert ONE not in log.image.brokers


def test_rule_9_dead_session_can_neither_register_nor_claim_again(log: MetadataLogBuilder) -> None:
    """Requests of a broker that was declared dead may still be under way (rule 9)."""
    before = log.image.brokers[ONE].registration
    log.stop_broker(1)
    assert code(log, before) is ResultCode.SESSION_GONE
    assert code(log, claim(1, 1)) is ResultCode.SESSION_GONE
    assert code(log, SessionClosed(session_id=session_of(1))) is ResultCode.OK
