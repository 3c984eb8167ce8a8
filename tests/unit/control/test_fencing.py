"""Which control requests a broker obeys."""

from quorate.broker.control.broker_control_service import ControlFence
from quorate.common.types import BrokerEpoch, ControllerEpoch, MetadataOffset
from quorate_proto.v1 import errors_pb2
from quorate_proto.v1.control_pb2 import ControlHeader

OWN = BrokerEpoch(50)


def header(
    controller_epoch: int = 3, *, max_broker_epoch: int = 50, broker_epoch: int = -1
) -> ControlHeader:
    return ControlHeader(
        controller_epoch=controller_epoch,
        max_broker_epoch=max_broker_epoch,
        broker_epoch=broker_epoch,
    )


def test_e3_a_lower_controller_epoch_is_refused_and_a_higher_one_adopted() -> None:
    fence = ControlFence()
    assert fence.check(header(3), OWN) == errors_pb2.NONE
    assert fence.check(header(3), OWN) == errors_pb2.NONE
    assert fence.check(header(2), OWN) == errors_pb2.STALE_CONTROLLER_EPOCH
    assert fence.check(header(5), OWN) == errors_pb2.NONE
    assert fence.check(header(4), OWN) == errors_pb2.STALE_CONTROLLER_EPOCH
    assert fence.controller_epoch == 5


def test_e3_the_metadata_log_tells_of_a_newer_controller_too() -> None:
    fence = ControlFence()
    fence.observe_controller_epoch(ControllerEpoch(4))
    assert fence.check(header(3), OWN) == errors_pb2.STALE_CONTROLLER_EPOCH


def test_b2_a_broker_without_an_epoch_refuses() -> None:
    assert ControlFence().check(header(), None) == errors_pb2.STALE_BROKER_EPOCH


def test_b2_meant_for_an_earlier_incarnation_is_stale_and_a_newer_epoch_is_not() -> None:
    fence = ControlFence()
    assert fence.check(header(max_broker_epoch=49), OWN) == errors_pb2.STALE_BROKER_EPOCH
    assert fence.check(header(max_broker_epoch=50), OWN) == errors_pb2.NONE
    assert fence.check(header(max_broker_epoch=51), OWN) == errors_pb2.NONE


def test_b2_the_old_form_carries_the_receivers_epoch() -> None:
    fence = ControlFence()
    old = {"max_broker_epoch": -1}
    assert fence.check(header(**old, broker_epoch=49), OWN) == errors_pb2.STALE_BROKER_EPOCH
    assert fence.check(header(**old, broker_epoch=50), OWN) == errors_pb2.NONE
    assert fence.check(header(**old, broker_epoch=-1), OWN) == errors_pb2.INVALID_REQUEST


def test_b2_metadata_made_from_an_older_image_is_dropped_within_one_incarnation() -> None:
    """Rule 4."""
    fence = ControlFence()
    fence.check(header(), OWN)
    assert fence.admits_metadata(MetadataOffset(70))
    assert fence.admits_metadata(MetadataOffset(70))
    assert not fence.admits_metadata(MetadataOffset(69))
    fence.check(header(max_broker_epoch=80), BrokerEpoch(80))
    assert fence.admits_metadata(MetadataOffset(60)), "the memory starts afresh"
