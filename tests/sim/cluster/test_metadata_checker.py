"""When the choice of a broker that may have lost its log is a loss, and whose consent it needs."""

import pytest

from quorate.broker.config.topic_keys import TOPIC_UNCLEAN_LEADER_ELECTION
from quorate.common.types import BrokerId, LeaderEpoch, TopicPartition
from quorate.metadata_log.apply import Applied
from quorate.metadata_log.records import ConfigSet, PartitionChange, Transaction
from tests.sim.cluster.checkers import Checker
from tests.sim.world import Violation, World
from tests.support.metadata import MetadataLogBuilder

TP = TopicPartition("orders", 0)


class _CheckedLog(MetadataLogBuilder):
    """Every transaction is looked at."""

    def __init__(self) -> None:
        self._checker = Checker(World(1), {})
        super().__init__()

    def apply(self, transaction: Transaction) -> Applied:
        before = self.image
        applied = super().apply(transaction)
        self._checker.metadata.applied(before, applied, transaction)
        return applied

    def elect(self, leader: int, isr: tuple[int, ...]) -> None:
        """Elect a leader as the controller does."""
        leaf = self.image.topics["orders"].partitions[0]
        result = self.write_as_controller(
            PartitionChange(
                topic="orders",
                topic_id=self.image.topics["orders"].topic_id,
                partition=0,
                expected_version=leaf.version,
                leader=BrokerId(leader),
                leader_epoch=LeaderEpoch(leaf.leader_epoch + 1),
                isr=tuple(map(BrokerId, isr)),
                controller_id=self.image.controller_id,
                controller_epoch=self.image.controller_epoch,
            )
        )
        assert result.results[0].ok


def _one_comes_back_without_its_log(*replicas: int) -> _CheckedLog:
    log = _CheckedLog()
    for broker_id in (1, 2, 3):
        log.start_broker(broker_id)
    log.elect_controller(3)
    log.admit_all()
    log.create_topic("orders", replicas)
    log.stop_broker(1)
    log.start_broker(1, 1)
    log.register_again(1, log_may_be_lost=True)
    return log


def test_c11_a_reassignment_decided_before_its_leader_bounced_is_no_loss_if_decided_anew() -> None:
    log = _one_comes_back_without_its_log(2, 3, 1)
    assert log.reassign(TP, replicas=(1, 3), leader=1, isr=(1, 3)).results[0].ok
    log.elect(3, isr=(3,))
    log.admit_all()


def test_rule_8_a_broker_that_may_have_lost_its_log_is_not_admitted_as_a_leader() -> None:
    log = _one_comes_back_without_its_log(2, 3, 1)
    assert log.reassign(TP, replicas=(1, 3), leader=1, isr=(1, 3)).results[0].ok
    with pytest.raises(Violation, match="broker 1, whose log may be lost, is admitted"):
        log.admit_all()


def test_rule_8_to_be_led_again_by_a_sole_member_that_lost_its_log_needs_consent() -> None:
    log = _one_comes_back_without_its_log(1)
    log.elect(1, isr=(1,))
    with pytest.raises(Violation, match=r"admitted as its leader in epoch .* without consent"):
        log.admit_all()


def test_rule_8_once_admitted_a_sole_member_that_lost_its_log_needs_consent_at_once() -> None:
    log = _one_comes_back_without_its_log(1)
    log.elect(-1, isr=(1,))
    log.admit_all()
    with pytest.raises(Violation, match="without consent"):
        log.elect(1, isr=(1,))


def test_rule_8_what_was_decided_before_the_bounce_is_no_loss_if_decided_anew() -> None:
    log = _one_comes_back_without_its_log(1)
    log.elect(1, isr=(1,))
    log.elect(-1, isr=(1,))
    log.admit_all()


def test_rule_8_with_consent_a_sole_member_that_lost_its_log_leads_again() -> None:
    log = _one_comes_back_without_its_log(1)
    consent = log.write_as_controller(
        ConfigSet(
            entity_type="topic",
            entity_name="orders",
            key=TOPIC_UNCLEAN_LEADER_ELECTION.key.name,
            value="true",
        )
    )
    assert consent.results[0].ok, consent
    log.elect(1, isr=(1,))
    log.admit_all()
