"""Who stands, serves and steps down: decided from one image."""

import pytest

from quorate.broker.controller.election import ControllerCandidate, ElectionStep, next_step
from quorate.common.types import NO_BROKER, BrokerId, ControllerEpoch
from quorate.metadata_log.records import ControllerRemoved
from tests.support.metadata import MetadataLogBuilder, session_of

ONE = ControllerCandidate(BrokerId(1), session_of(1))
TWO = ControllerCandidate(BrokerId(2), session_of(2))
NONE_YET = ControllerEpoch(0)


def cluster() -> MetadataLogBuilder:
    log = MetadataLogBuilder()
    for broker_id in (1, 2):
        log.start_broker(broker_id)
    return log


def test_e1_a_vacant_office_is_claimed_by_all() -> None:
    image = cluster().image
    for me in (ONE, TWO):
        assert next_step(image, me, serving=None, over=NONE_YET) is ElectionStep.CLAIM


def test_e1_the_first_claim_wins_and_the_others_give_up() -> None:
    log = cluster()
    assert log.elect_controller(1).ok
    assert not log.elect_controller(2).ok
    assert next_step(log.image, ONE, serving=None, over=NONE_YET) is ElectionStep.SERVE
    assert next_step(log.image, TWO, serving=None, over=NONE_YET) is ElectionStep.WAIT


def test_e2_the_controller_epoch_starts_at_one_and_grows_by_one() -> None:
    log = cluster()
    assert log.image.controller_epoch == 0
    for epoch in (1, 2, 3):
        assert log.elect_controller(epoch % 2 + 1).ok
        assert log.image.controller_epoch == epoch
        log.write(ControllerRemoved(broker_id=NO_BROKER))
    assert log.image.controller_epoch == 3, "it outlives /controller"


def test_e1_only_a_registered_broker_stands() -> None:
    image = cluster().image
    stranger = ControllerCandidate(BrokerId(3), session_of(3))
    assert next_step(image, stranger, serving=None, over=NONE_YET) is ElectionStep.WAIT
    renewed = ControllerCandidate(BrokerId(1), session_of(1, 1))
    assert next_step(image, renewed, serving=None, over=NONE_YET) is ElectionStep.WAIT, (
        "not yet again"
    )


def test_e4_a_controller_that_is_not_named_any_more_leaves() -> None:
    log = cluster()
    log.elect_controller(1)
    epoch = log.image.controller_epoch
    assert next_step(log.image, ONE, serving=epoch, over=NONE_YET) is ElectionStep.SERVE
    log.write(ControllerRemoved(broker_id=NO_BROKER))
    assert next_step(log.image, ONE, serving=epoch, over=NONE_YET) is ElectionStep.LEAVE
    log.elect_controller(1)
    assert next_step(log.image, ONE, serving=epoch, over=NONE_YET) is ElectionStep.LEAVE, (
        "named again, but in another tenure"
    )


def test_e4_a_tenure_that_is_over_is_vacated_not_resumed() -> None:
    log = cluster()
    log.elect_controller(1)
    over = log.image.controller_epoch
    assert next_step(log.image, ONE, serving=None, over=over) is ElectionStep.VACATE
    log.write(ControllerRemoved(broker_id=BrokerId(1)))
    assert next_step(log.image, ONE, serving=None, over=over) is ElectionStep.CLAIM


def test_e5_an_earlier_process_of_the_same_id_is_somebody_else() -> None:
    log = cluster()
    log.elect_controller(1)
    restarted = ControllerCandidate(BrokerId(1), session_of(1, 1))
    assert next_step(log.image, restarted, serving=None, over=NONE_YET) is ElectionStep.WAIT
    log.stop_broker(1)
    log.start_broker(1, 1)
    assert next_step(log.image, restarted, serving=None, over=NONE_YET) is ElectionStep.CLAIM


@pytest.mark.parametrize("holder", [1, 2])
def test_e5_the_session_ends_the_office(holder: int) -> None:
    log = cluster()
    log.elect_controller(holder)
    log.stop_broker(holder)
    assert log.image.controller is None
    other = TWO if holder == 1 else ONE
    assert next_step(log.image, other, serving=None, over=NONE_YET) is ElectionStep.CLAIM
