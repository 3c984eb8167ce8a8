"""/controller changed by hand (E5), and what is no controller (E1)."""

import msgspec
import pytest

from quorate.common.types import NO_BROKER, BrokerId, MetadataOffset
from quorate.metadata_log.handover import IneligibleController, hand_over, release_controller
from quorate.metadata_log.image import ControllerState
from quorate.metadata_log.records import ResultCode
from tests.support.metadata import MetadataLogBuilder, session_of

NOW_MS = 1_593_330_804_078


@pytest.fixture
def log() -> MetadataLogBuilder:
    log = MetadataLogBuilder()
    for broker_id in (1, 2, 3):
        log.start_broker(broker_id)
    log.elect_controller(1)
    return log


def holder(log: MetadataLogBuilder) -> tuple[int, int]:
    return log.image.controller_id, log.image.controller_epoch


def test_e5_handing_over_leaves_no_moment_without_a_controller(log: MetadataLogBuilder) -> None:
    assert log.transact(hand_over(log.image, BrokerId(3), NOW_MS)).ok
    assert holder(log) == (3, 2)
    assert log.image.controller is not None
    assert log.image.controller.timestamp_ms == NOW_MS
    assert log.image.controller.session_id == session_of(3)


def test_e5_a_vacant_office_can_be_given_away_too(log: MetadataLogBuilder) -> None:
    assert log.transact(release_controller(log.image)).ok
    assert holder(log) == (NO_BROKER, 1)
    assert log.transact(hand_over(log.image, BrokerId(2), NOW_MS)).ok
    assert holder(log) == (2, 2)


def test_e5_what_was_decided_before_another_election_changes_nothing(
    log: MetadataLogBuilder,
) -> None:
    late = [hand_over(log.image, BrokerId(3), NOW_MS), release_controller(log.image)]
    log.transact(hand_over(log.image, BrokerId(2), NOW_MS))
    for operation in late:
        assert log.transact(operation).results[0].code is ResultCode.CONTROLLER_FENCED
    assert holder(log) == (2, 2)


def test_e5_only_a_live_session_can_be_given_the_office(log: MetadataLogBuilder) -> None:
    meant = hand_over(log.image, BrokerId(3), NOW_MS)
    log.stop_broker(3)
    assert log.transact(meant).results[0].code is ResultCode.SESSION_GONE
    assert holder(log) == (1, 1), "and the office is not lost over it"
    with pytest.raises(
        IneligibleController, match="broker 3 is not registered; live brokers: 1, 2"
    ):
        hand_over(log.image, BrokerId(3), NOW_MS)


def test_e1_a_controller_record_that_names_nobody_may_be_claimed(log: MetadataLogBuilder) -> None:
    nobody = ControllerState(NO_BROKER, session_of(9), 0, MetadataOffset(1))
    log.image = msgspec.structs.replace(log.image, controller=nobody)
    assert log.elect_controller(2).ok
    assert holder(log) == (2, 2)
