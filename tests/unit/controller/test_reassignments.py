"""Moving replicas: what is decided from one image (C11, scenario 8)."""

import re

import msgspec
import pytest

from quorate.broker.controller.managers import reassignment_manager
from quorate.broker.controller.managers.broker_manager import leadership_changes, liveness
from quorate.broker.controller.managers.decisions import ControllerTenure
from quorate.broker.controller.managers.reassignment_manager import EligibleBrokers, WantedTarget
from quorate.common.types import NO_BROKER, BrokerId, TopicPartition
from quorate.metadata_log.image import METADATA_VERSION, Image
from quorate.metadata_log.partitions import Partition
from quorate.metadata_log.records import (
    BrokerAdmitted,
    IsrChange,
    IsrMember,
    PartitionRemovalPending,
    TopicDeletionPending,
)
from quorate_proto.v1 import admin_pb2, errors_pb2
from tests.support.metadata import MetadataLogBuilder, topic_id_of

TP = TopicPartition("orders", 0)


class Moves:
    """Brokers 0 to 5, 5 the controller; one partition on 3, 2 and 1, led by 3, all in sync."""

    def __init__(self) -> None:
        self.log = MetadataLogBuilder()
        for broker_id in range(6):
            self.log.start_broker(broker_id)
        self.log.elect_controller(5)
        self.admit_all()
        assert self.log.create_topic("orders", (3, 2, 1)).ok
        self.leaving: frozenset[BrokerId] = frozenset()

    @property
    def image(self) -> Image:
        return self.log.image

    @property
    def tenure(self) -> ControllerTenure:
        return ControllerTenure(BrokerId(5), self.image.controller_epoch)

    @property
    def partition(self) -> Partition:
        found = self.image.partition(TP)
        assert found is not None
        return found

    @property
    def candidates(self) -> EligibleBrokers:
        brokers = liveness(self.image)
        return EligibleBrokers(brokers, brokers.steady - self.leaving)

    def admit_all(self) -> None:
        for broker in self.image.brokers.values():
            self.log.write_as_controller(
                BrokerAdmitted(broker_id=broker.broker_id, broker_epoch=broker.epoch)
            )

    def set_isr(self, *isr: int) -> None:
        before = self.partition
        change = IsrChange(
            topic=TP.topic,
            topic_id=topic_id_of(TP.topic),
            partition=0,
            expected_version=before.version,
            leader=before.leader,
            leader_broker_epoch=self.image.brokers[before.leader].epoch,
            leader_epoch=before.leader_epoch,
            isr=tuple(
                IsrMember(broker_id=BrokerId(b), broker_epoch=self.image.brokers[BrokerId(b)].epoch)
                for b in isr
            ),
        )
        assert self.log.write(change).ok

    def kill(self, broker_id: int) -> None:
        """The broker is gone, and what it led is led by another."""
        self.log.stop_broker(broker_id)
        for operation in leadership_changes(
            self.image, self.tenure, liveness(self.image), unclean=lambda _: False
        ):
            assert self.log.transact(operation).ok

    def alter(self, *target: int, tp: TopicPartition = TP, **options: bool) -> str:
        """Ask for ``target``, or to cancel if there is none; the error's name."""
        wanted = WantedTarget(tp, tuple(map(BrokerId, target)) if target else None)
        (decision,) = reassignment_manager.alter(
            self.image, [wanted], tenure=self.tenure, candidates=self.candidates, **options
        )
        if decision.operation is not None:
            assert self.log.transact(decision.operation).ok
        self.message = decision.result.error_message
        return errors_pb2.ErrorCode.Name(decision.result.error_code)  # type: ignore[arg-type]

    def complete(self) -> bool:
        """Let the agent look; whether it ended something."""
        operations = reassignment_manager.completions(
            self.image, ["orders"], tenure=self.tenure, candidates=self.candidates
        )
        return bool(operations) and all(self.log.transact(one).ok for one in operations)

    def listed(self, *wanted: TopicPartition) -> list[admin_pb2.OngoingReassignment]:
        return reassignment_manager.listed(self.image, wanted or None)


@pytest.fixture
def moves() -> Moves:
    return Moves()


# --- scenario 8 ---------------------------------------------------------------------------------


def test_c11_s8_replicas_are_added_and_removed_or_the_plan_cancelled(moves: Moves) -> None:
    assert moves.alter(0, 2, 1) == "NONE"
    (ongoing,) = moves.listed()
    assert (ongoing.topic, ongoing.partition) == TP
    assert list(ongoing.replicas) == [3, 2, 1, 0]
    assert list(ongoing.adding_replicas) == [0]
    assert list(ongoing.removing_replicas) == [3]
    assert moves.alter() == "NONE"
    assert moves.partition.replicas == (3, 2, 1)
    assert not moves.listed()
    assert moves.alter() == "NO_REASSIGNMENT_IN_PROGRESS"


def test_c11_s8_the_plan_completes_when_the_new_replica_is_in_sync(moves: Moves) -> None:
    moves.alter(0, 2, 1)
    assert not moves.complete()
    moves.set_isr(3, 2, 1, 0)
    assert moves.complete()
    assert moves.partition.replicas == (0, 2, 1)
    assert moves.partition.isr == (0, 2, 1)
    assert moves.partition.leader == 0, "3 led, and is gone from it"
    assert moves.partition.leader_epoch == 2
    assert not moves.listed()
    assert not moves.complete()


def test_c11_only_partitions_that_are_asked_for_are_listed(moves: Moves) -> None:
    moves.log.create_topic("b", (1, 2), (2, 1))
    moves.alter(0, 2, 1)
    moves.alter(0, 3, tp=TopicPartition("b", 1))
    assert [(one.topic, one.partition) for one in moves.listed()] == [("b", 1), TP]
    assert [one.topic for one in moves.listed(TP, TopicPartition("b", 0))] == ["orders"]


# --- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ((0, 0, 1), "not distinct"),
        ((0, 9, 1), r"\[9\].*not live"),
        ((-2, 1), "not live"),
    ],
)
def test_c11_a_target_that_cannot_be_is_refused(
    moves: Moves, target: tuple[int, ...], says: str
) -> None:
    before = moves.image
    assert moves.alter(*target) == "INVALID_REPLICA_ASSIGNMENT"
    assert re.search(says, moves.message)
    assert moves.image is before


def test_c11_b4_older_voters_are_spared_records_they_cannot_read(moves: Moves) -> None:
    features = moves.image.features.set(METADATA_VERSION, 1)
    moves.log.image = msgspec.structs.replace(moves.image, features=features)
    assert moves.alter(0, 2, 1) == "UNSUPPORTED_VERSION"
    assert "upgrade the feature" in moves.message


def test_c11_an_empty_target_is_refused(moves: Moves) -> None:
    (decision,) = reassignment_manager.alter(
        moves.image, [WantedTarget(TP, ())], tenure=moves.tenure, candidates=moves.candidates
    )
    assert decision.result.error_code == errors_pb2.INVALID_REPLICA_ASSIGNMENT


def test_c11_an_unknown_partition_does_not_stop_its_siblings(moves: Moves) -> None:
    target = tuple(map(BrokerId, (0, 2, 1)))
    decisions = reassignment_manager.alter(
        moves.image,
        [
            WantedTarget(TopicPartition("orders", 1), target),
            WantedTarget(TopicPartition("none", 0), None),
            WantedTarget(TP, target),
        ],
        tenure=moves.tenure,
        candidates=moves.candidates,
    )
    unknown = errors_pb2.UNKNOWN_TOPIC_OR_PARTITION
    assert [one.result.error_code for one in decisions] == [unknown, unknown, errors_pb2.NONE]


def test_c11_a_topic_that_is_being_deleted_is_left_alone(moves: Moves) -> None:
    moves.alter(0, 2, 1)
    moves.set_isr(3, 2, 1, 0)
    moves.log.write_as_controller(
        TopicDeletionPending(name="orders", topic_id=topic_id_of("orders"))
    )
    assert moves.alter(0, 2) == "UNKNOWN_TOPIC_OR_PARTITION"
    assert not moves.complete()
    assert not moves.listed()


def test_c11_c14_a_partition_that_is_being_removed_is_left_alone(moves: Moves) -> None:
    moves.log.create_topic("b", (1, 2), (2, 1))
    removal = PartitionRemovalPending(topic="b", topic_id=topic_id_of("b"), first_partition=1)
    assert moves.log.write_as_controller(removal).ok
    assert moves.alter(0, 2, tp=TopicPartition("b", 1)) == "UNKNOWN_TOPIC_OR_PARTITION"
    assert moves.message == "b-1 is being deleted"
    assert moves.alter(0, 2, tp=TopicPartition("b", 0)) == "NONE"


def test_c11_the_replication_factor_changes_only_where_that_is_allowed(moves: Moves) -> None:
    refused = moves.alter(0, 2, allow_replication_factor_change=False)
    assert refused == "INVALID_REPLICATION_FACTOR"
    assert moves.alter(0, 2, 4, allow_replication_factor_change=False) == "NONE"
    assert moves.alter(0, 2, allow_replication_factor_change=False) == "INVALID_REPLICATION_FACTOR"
    assert moves.alter(0, 2, allow_replication_factor_change=True) == "NONE"


# --- old and new replicas that are away ---------------------------------------------------------


def test_c11_a_dead_old_replica_holds_nothing_up(moves: Moves) -> None:
    moves.alter(0, 2, 4)
    moves.kill(1)
    moves.kill(3)
    assert moves.partition.leader == 2
    moves.set_isr(2, 0, 4)
    assert moves.complete()
    assert moves.partition.replicas == (0, 2, 4)


def test_c11_a_dead_new_replica_holds_it_up_until_it_is_back_in_sync(moves: Moves) -> None:
    moves.alter(0, 2, 4)
    moves.set_isr(3, 2, 1, 0, 4)
    moves.log.stop_broker(4)
    assert not moves.complete(), "though the ISR has it still"
    moves.kill(4)
    assert not moves.complete()
    moves.log.start_broker(4, incarnation=1)
    moves.admit_all()
    assert not moves.complete()
    moves.set_isr(3, 2, 1, 0, 4)
    assert moves.complete()


def test_c11_old_replicas_are_first_while_it_is_pending(moves: Moves) -> None:
    """So the preferred leader stays, and a failure prefers who has been there longer."""
    moves.alter(0, 4)
    assert moves.partition.replicas == (3, 2, 1, 0, 4)
    moves.set_isr(3, 0, 1)
    moves.kill(3)
    assert moves.partition.leader == 1


def test_c11_leadership_goes_to_who_does_not_want_to_stop(moves: Moves) -> None:
    moves.alter(0, 4)
    moves.set_isr(3, 2, 1, 0, 4)
    moves.leaving = frozenset([BrokerId(0)])
    assert moves.complete()
    assert moves.partition.leader == 4


def test_c11_where_all_want_to_stop_one_of_them_leads(moves: Moves) -> None:
    moves.alter(0, 4)
    moves.set_isr(3, 2, 1, 0, 4)
    moves.leaving = frozenset(map(BrokerId, (0, 4)))
    assert moves.complete()
    assert moves.partition.leader == 0


def test_c11_a_leader_that_stays_goes_on_leading(moves: Moves) -> None:
    moves.alter(2, 3, 4)
    moves.set_isr(3, 2, 1, 4)
    assert moves.complete()
    assert (moves.partition.leader, moves.partition.replicas) == (3, (2, 3, 4))


# --- other plans while one is pending -----------------------------------------------------------


def test_c11_a_new_plan_takes_the_place_of_the_old_one(moves: Moves) -> None:
    moves.alter(0, 2, 1)
    moves.set_isr(3, 2, 1, 0)
    assert moves.alter(4, 2, 1) == "NONE"
    assert set(moves.partition.replicas) == {3, 2, 1, 4}
    assert moves.partition.isr == (3, 2, 1), "0 is no replica any more"
    (ongoing,) = moves.listed()
    assert (list(ongoing.adding_replicas), list(ongoing.removing_replicas)) == ([4], [3])
    assert moves.alter() == "NONE"
    assert moves.partition.replicas == (3, 2, 1)


def test_c11_the_same_plan_again_changes_nothing(moves: Moves) -> None:
    before = moves.image
    assert moves.alter(3, 2, 1) == "NONE"
    assert moves.image is before
    moves.alter(0, 2, 1)
    before = moves.image
    assert moves.alter(0, 2, 1) == "NONE"
    assert moves.image is before


def test_c11_back_to_where_it_came_from_is_a_cancellation(moves: Moves) -> None:
    moves.alter(0, 2, 1)
    assert moves.alter(1, 2, 3) == "NONE"
    assert moves.partition.replicas == (1, 2, 3)
    assert not moves.listed()


def test_c11_what_is_in_sync_already_is_done_at_once(moves: Moves) -> None:
    assert moves.alter(2, 1) == "NONE"
    assert (moves.partition.replicas, moves.partition.leader) == ((2, 1), 2)
    assert not moves.listed()
    moves.set_isr(2)
    assert moves.alter(1, 2) == "NONE", "another order needs nobody in sync"
    assert (moves.partition.replicas, moves.partition.leader) == ((1, 2), 2)


def test_c11_a_replica_that_is_not_live_is_not_counted_on(moves: Moves) -> None:
    moves.log.stop_broker(2)
    assert moves.alter(2, 1) == "NONE"
    assert moves.listed(), "2 is in the ISR, but gone"


def test_c11_a_cancellation_needs_an_old_replica_in_sync(moves: Moves) -> None:
    moves.alter(0, 4)
    moves.set_isr(3, 0)
    moves.kill(3)
    assert moves.partition.isr == (0,)
    assert moves.alter() == "INVALID_REPLICA_ASSIGNMENT"
    assert "would be in the ISR" in moves.message
    moves.set_isr(0, 1)
    assert moves.alter() == "NONE"
    assert (moves.partition.leader, moves.partition.isr) == (1, (1,))


def test_c11_a_cancellation_needs_an_old_replica_that_lives(moves: Moves) -> None:
    moves.alter(0, 4)
    moves.set_isr(3, 0)
    moves.kill(3)
    moves.set_isr(0, 1)
    moves.log.stop_broker(1)
    assert moves.alter() == "INVALID_REPLICA_ASSIGNMENT"
    assert "no live broker could lead" in moves.message
    moves.log.start_broker(1, incarnation=1)
    moves.admit_all()
    assert moves.alter() == "NONE"
    assert moves.partition.leader == 1


def test_c11_an_offline_partition_can_be_moved(moves: Moves) -> None:
    for broker_id in (1, 2, 3):
        moves.kill(broker_id)
    assert moves.partition.leader == NO_BROKER
    assert moves.alter(0, 4) == "NONE"
    assert moves.partition.leader == NO_BROKER
    assert not moves.complete()
    moves.log.start_broker(3, incarnation=1)
    for operation in leadership_changes(
        moves.image, moves.tenure, liveness(moves.image), unclean=lambda _: False
    ):
        assert moves.log.transact(operation).ok
    moves.admit_all()
    moves.set_isr(3, 0, 4)
    assert moves.complete()
    assert moves.partition.replicas == (0, 4)
