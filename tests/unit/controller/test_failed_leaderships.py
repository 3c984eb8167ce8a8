"""Which elections have failed by what a broker answers, and which faults still hold (C21)."""

from collections.abc import Iterable

import pytest

from quorate.broker.controller.channels.failed_leaderships import FailedLeaderships
from quorate.broker.controller.managers.broker_manager import failed_elections
from quorate.broker.controller.managers.decisions import ControllerTenure
from quorate.common.types import BrokerId, ControllerEpoch, TopicIdPartition
from quorate.metadata_log.records import PartitionChange
from quorate_proto.v1 import control_pb2, errors_pb2
from tests.support.metadata import MetadataLogBuilder, topic_id_of

ONE, TWO = BrokerId(1), BrokerId(2)
TENURE = ControllerTenure(ONE, ControllerEpoch(1))
FAULT = errors_pb2.KAFKA_STORAGE_ERROR


@pytest.fixture
def log() -> MetadataLogBuilder:
    """Broker 2 leads partition 0 and follows in partition 1."""
    log = MetadataLogBuilder()
    for broker_id in (1, 2):
        log.start_broker(broker_id)
    log.elect_controller(1)
    log.create_topic("orders", (2, 1), (1, 2))
    return log


def tip(partition: int) -> TopicIdPartition:
    return TopicIdPartition(topic_id_of("orders"), partition)


def outcomes(*codes: int) -> list[control_pb2.PartitionOutcome]:
    return [
        control_pb2.PartitionOutcome(topic="orders", partition=number, error_code=code)
        for number, code in enumerate(codes)
    ]


def places(found: Iterable[control_pb2.PartitionOutcome]) -> list[int]:
    return [one.partition for one in found]


def test_only_who_was_to_lead_was_not_elected(log: MetadataLogBuilder) -> None:
    failed = FailedLeaderships(TWO)
    assert failed.record(log.image, outcomes(FAULT, FAULT)) == [tip(0)]
    assert places(failed.held) == [0, 1]


def test_a_newer_request_that_came_first_is_no_fault(log: MetadataLogBuilder) -> None:
    failed = FailedLeaderships(TWO)
    stale = outcomes(errors_pb2.FENCED_LEADER_EPOCH, errors_pb2.UNKNOWN_TOPIC_OR_PARTITION)
    assert failed.record(log.image, stale) == []
    assert not failed.held


def test_a_fault_holds_until_its_own_partition_is_taken_up(log: MetadataLogBuilder) -> None:
    failed = FailedLeaderships(TWO)
    failed.record(log.image, outcomes(FAULT))
    assert failed.record(log.image, outcomes()) == [], "told once"
    assert places(failed.held) == [0]
    failed.record(log.image, outcomes(errors_pb2.NONE))
    assert not failed.held


def test_a_fault_of_a_partition_that_is_gone_is_none(log: MetadataLogBuilder) -> None:
    failed = FailedLeaderships(TWO)
    failed.record(log.image, outcomes(FAULT))
    empty = MetadataLogBuilder()
    failed.record(empty.image, outcomes())
    assert not failed.held


def test_another_member_of_the_isr_is_elected_in_the_next_epoch(log: MetadataLogBuilder) -> None:
    live = frozenset((ONE, TWO))
    broker = log.image.brokers[TWO]
    (operation,) = failed_elections(log.image, TENURE, broker, [tip(0), tip(1)], live)
    (change,) = operation.records
    assert isinstance(change, PartitionChange)
    assert (change.leader, change.leader_epoch, change.isr) == (1, 1, (1,))


def test_the_word_of_an_earlier_incarnation_elects_nobody(log: MetadataLogBuilder) -> None:
    live = frozenset((ONE, TWO))
    before = log.image.brokers[TWO]
    log.stop_broker(2)
    assert not failed_elections(log.image, TENURE, before, [tip(0)], live)
    log.start_broker(2)
    assert log.image.brokers[TWO].epoch != before.epoch
    assert not failed_elections(log.image, TENURE, before, [tip(0)], live)


def test_c21_an_answer_about_all_partitions_ends_the_faults_that_it_does_not_name(
    log: MetadataLogBuilder,
) -> None:
    """An INIT from the log is answered with the failures alone."""
    failed = FailedLeaderships(TWO)
    failed.record(log.image, outcomes(FAULT, FAULT))
    failed.record(log.image, outcomes(FAULT)[:0])
    assert places(failed.held) == [0, 1], "nothing was said of them"
    failed.record(log.image, outcomes(0, FAULT)[1:], about_all=True)
    assert places(failed.held) == [1]
