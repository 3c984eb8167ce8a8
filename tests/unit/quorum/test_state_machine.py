"""The replicated state between Raft and the image."""

import pytest

from quorate.metadata_log.codec import encode_transaction
from quorate.metadata_log.features import NEWEST_METADATA_VERSION
from quorate.metadata_log.image import METADATA_VERSION, Image
from quorate.metadata_log.records import Operation, QuorumVoterSet, Transaction
from quorate.quorum.raft.guards import SafetyViolation
from quorate.quorum.voter.state_machine import QuorumStateMachine
from tests.support.metadata import quorum_voter


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
