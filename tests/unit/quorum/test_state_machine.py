"""The replicated state between Raft and the image."""

import pytest

from quorate.common.types import TopicPartition
from quorate.metadata_log.apply import Applied
from quorate.metadata_log.codec import encode_transaction
from quorate.metadata_log.features import NEWEST_METADATA_VERSION
from quorate.metadata_log.image import METADATA_VERSION, Image
from quorate.metadata_log.packed_partitions import PackedPartitions
from quorate.metadata_log.records import Operation, QuorumVoterSet, TopicRemoved, Transaction
from quorate.quorum.raft.guards import SafetyViolation
from quorate.quorum.voter.state_machine import QuorumStateMachine
from tests.support.metadata import MetadataLogBuilder, quorum_voter, topic_id_of


def test_b4_a_voter_that_cannot_read_the_records_in_force_stops() -> None:
    machine = QuorumStateMachine()
    ahead = QuorumVoterSet(
        expected_version=0,
        voters=(quorum_voter(1),),
        metadata_version=NEWEST_METADATA_VERSION + 1,
    )
    command = encode_transaction(Transaction(operations=(Operation(records=(ahead,)),)))
    with pytest.raises(SafetyViolation, match="install the newer version"):
        machine.apply_run([(1, command)])


def test_b4_nor_does_it_start_from_such_a_snapshot() -> None:
    features = Image().features.set(METADATA_VERSION, NEWEST_METADATA_VERSION + 1)
    with pytest.raises(SafetyViolation, match="install the newer version"):
        QuorumStateMachine().install(7, Image(features=features))
    at_the_edge = Image(features=features.set(METADATA_VERSION, NEWEST_METADATA_VERSION))
    QuorumStateMachine().install(7, at_the_edge)


class TwoHolders(MetadataLogBuilder):
    """A log whose transactions a voter applies as well; both must come to the same."""

    def __init__(self) -> None:
        self.machine = QuorumStateMachine()
        super().__init__()

    def apply(self, transaction: Transaction) -> Applied:
        applied = super().apply(transaction)
        (result,) = self.machine.apply_run(
            [(applied.image.offset, encode_transaction(transaction))]
        )
        assert result == applied.result
        assert self.machine.image == applied.image
        return applied

    def restart_voter(self) -> None:
        chunks = list(self.machine.snapshot_chunks())
        restarted = QuorumStateMachine()
        restarted.install(self.machine.image.offset, restarted.decode(chunks))
        assert restarted.image == self.machine.image
        self.machine = restarted


def test_a_voter_holds_partitions_packed_and_comes_to_the_same_as_a_broker() -> None:
    log = TwoHolders()
    for broker_id in (1, 2, 3):
        log.start_broker(broker_id)
    log.elect_controller(1)
    log.admit_all()
    log.create_topic("orders", (1, 2, 3), (2, 3, 1), (3, 1, 2))
    log.create_topic("counted", (1,), (2,), (3,))
    for number in (0, 2):
        tp = TopicPartition("orders", number)
        assert log.reassign(tp, replicas=(2, 3, 1), target=(2, 1)).ok
        log.restart_voter()
    assert log.remove_partitions("counted", 1).ok
    assert log.complete_removal("counted").ok
    assert log.add_partitions("counted", (2, 1), (1, 3)).ok
    assert log.complete_addition("counted").ok
    types = {type(topic.partitions) for topic in log.machine.image.topics.values()}
    assert types == {PackedPartitions}, "a voter does not hold millions of leaves"
    log.restart_voter()
    log.write_as_controller(TopicRemoved(name="orders", topic_id=topic_id_of("orders")))
    log.restart_voter()
    assert [*log.machine.image.topics] == ["counted"]
