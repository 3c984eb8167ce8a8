"""/quorum/voters: one change of one member at a time, by the quorum's leader alone."""

import msgspec
import pytest

from quorate.metadata_log.image import VoterSet
from quorate.metadata_log.records import (
    Operation,
    QuorumVoter,
    QuorumVoterSet,
    ResultCode,
    SessionOpened,
    Transaction,
)
from tests.support.metadata import MetadataLogBuilder, quorum_voter, session_of

ONE, TWO, THREE, FOUR = map(quorum_voter, (1, 2, 3, 4))
WATCHING = quorum_voter(4, observer=True)
UNSEEN = msgspec.structs.replace(WATCHING, directory_id=b"")


@pytest.fixture
def log() -> MetadataLogBuilder:
    """Voters 1, 2 and 3."""
    log = MetadataLogBuilder(begun=False)
    assert code(log, ONE, TWO, THREE) is ResultCode.OK
    return log


def code(log: MetadataLogBuilder, *voters: QuorumVoter, version: int | None = None) -> ResultCode:
    """What becomes of a change to these voters."""
    expected = log.image.voter_set.version if version is None else version
    record = QuorumVoterSet(expected_version=expected, voters=voters)
    return log.write(record).results[0].code


def test_the_set_is_replaced_and_its_version_is_the_offset(log: MetadataLogBuilder) -> None:
    assert log.image.voter_set == VoterSet((ONE, TWO, THREE), 1)
    assert code(log, ONE, TWO) is ResultCode.OK
    assert log.image.voter_set == VoterSet((ONE, TWO), 2)


def test_a_voter_joins_in_steps(log: MetadataLogBuilder) -> None:
    for member in (UNSEEN, WATCHING, FOUR):
        assert code(log, ONE, TWO, THREE, member) is ResultCode.OK
    assert log.image.voter_set.voters == (ONE, TWO, THREE, FOUR)


def test_folder_and_vote_may_come_together(log: MetadataLogBuilder) -> None:
    assert code(log, ONE, TWO, THREE, UNSEEN) is ResultCode.OK
    assert code(log, ONE, TWO, THREE, FOUR) is ResultCode.OK


def test_compare_and_set(log: MetadataLogBuilder) -> None:
    assert code(log, ONE, TWO, version=0) is ResultCode.VERSION_CONFLICT
    assert code(log, ONE, TWO, version=1) is ResultCode.OK
    assert code(log, ONE, TWO, THREE, WATCHING, version=1) is ResultCode.VERSION_CONFLICT


MOVED = msgspec.structs.replace(THREE, raft=quorum_voter(9).raft)


@pytest.mark.parametrize(
    "voters",
    [
        pytest.param((ONE,), id="two leave"),
        pytest.param((ONE, TWO, WATCHING), id="one comes and one leaves"),
        pytest.param((ONE, TWO, THREE, WATCHING, quorum_voter(5, observer=True)), id="two come"),
        pytest.param((ONE, TWO, THREE), id="nothing changes"),
        pytest.param((ONE, TWO, THREE, FOUR), id="a vote without catching up"),
        pytest.param((ONE, TWO, MOVED), id="a voter moves"),
        pytest.param((ONE, TWO, quorum_voter(3, folder=1)), id="another data folder"),
        pytest.param((ONE, TWO, quorum_voter(3, observer=True)), id="a vote is taken away"),
        pytest.param((ONE, TWO, THREE, THREE), id="an id twice"),
        pytest.param(
            (ONE, TWO, THREE, msgspec.structs.replace(WATCHING, grpc=ONE.raft)),
            id="an address twice",
        ),
    ],
)
def test_more_than_one_sound_change_is_refused(
    log: MetadataLogBuilder, voters: tuple[QuorumVoter, ...]
) -> None:
    before = log.image.voter_set
    assert code(log, *voters) is ResultCode.INVALID
    assert log.image.voter_set == before


def test_a_promoted_voter_must_have_a_data_folder(log: MetadataLogBuilder) -> None:
    assert code(log, ONE, TWO, THREE, UNSEEN) is ResultCode.OK
    nowhere = msgspec.structs.replace(FOUR, directory_id=b"")
    assert code(log, ONE, TWO, THREE, nowhere) is ResultCode.INVALID
    assert code(log, ONE, TWO, THREE, WATCHING) is ResultCode.OK
    other = quorum_voter(4, folder=1)
    assert code(log, ONE, TWO, THREE, other) is ResultCode.INVALID


@pytest.mark.parametrize("voters", [(), (WATCHING,)])
def test_a_quorum_without_voters_is_refused(voters: tuple[QuorumVoter, ...]) -> None:
    log = MetadataLogBuilder(begun=False)
    assert code(log, *voters) is ResultCode.INVALID


def test_the_last_voter_stays() -> None:
    log = MetadataLogBuilder(begun=False)
    assert code(log, ONE) is ResultCode.OK
    assert code(log, ONE, WATCHING) is ResultCode.OK
    assert code(log, WATCHING) is ResultCode.INVALID


def test_a_client_cannot_write_it(log: MetadataLogBuilder) -> None:
    session = session_of(1)
    log.write(SessionOpened(session_id=session, timeout_ms=1_000))
    operation = Operation(records=(QuorumVoterSet(expected_version=1, voters=(ONE, TWO)),))
    by_session = log.transact(operation, client_id=session, sequence=1)
    marked = log.apply(Transaction(operations=(operation,), from_client=True)).result
    for result in (by_session, marked):
        assert result.results[0].code is ResultCode.INVALID
        assert "quorate quorum" in result.results[0].detail
    assert log.transact(operation).ok
