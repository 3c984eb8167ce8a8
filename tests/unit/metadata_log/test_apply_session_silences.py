"""How long sessions had been silent is replicated, by the quorum alone (rule 9)."""

import pytest

from quorate.common.types import SessionId
from quorate.metadata_log.records import (
    Operation,
    ResultCode,
    SessionClosed,
    SessionOpened,
    SessionSilence,
    SessionSilences,
    Transaction,
)
from tests.support.metadata import MetadataLogBuilder, session_of

ONE, TWO = session_of(1), session_of(2)


@pytest.fixture
def log() -> MetadataLogBuilder:
    log = MetadataLogBuilder()
    for session in (ONE, TWO):
        log.write(SessionOpened(session_id=session, timeout_ms=6_000))
    return log


def noted(quarters: dict[SessionId, int]) -> SessionSilences:
    return SessionSilences(
        silences=tuple(
            SessionSilence(session_id=session, quarters=count)
            for session, count in quarters.items()
        )
    )


def test_rule9_silences_are_noted_and_forgotten(log: MetadataLogBuilder) -> None:
    assert log.write(noted({ONE: 1, TWO: 4})).ok
    assert log.write(noted({ONE: 2})).ok
    assert dict(log.image.silences) == {ONE: 2, TWO: 4}
    assert log.write(noted({TWO: 0})).ok
    assert dict(log.image.silences) == {ONE: 2}


def test_rule9_closed_session_takes_its_silence_along(log: MetadataLogBuilder) -> None:
    log.write(noted({ONE: 3, TWO: 1}))
    log.write(SessionClosed(session_id=ONE))
    late = noted({ONE: 4, TWO: 2})
    assert log.write(late).ok
    assert dict(log.image.silences) == {TWO: 2}


def test_rule9_no_client_writes_silences(log: MetadataLogBuilder) -> None:
    operation = Operation(records=(noted({TWO: 4}),))
    of_a_session = log.transact(operation, client_id=ONE, sequence=1)
    marked = log.apply(Transaction(operations=(operation,), from_client=True)).result
    for result in (of_a_session, marked):
        assert result.results[0].code is ResultCode.INVALID
    assert not log.image.silences


@pytest.mark.parametrize("quarters", [-1, 5])
def test_silence_beyond_the_timeout_is_refused(log: MetadataLogBuilder, quarters: int) -> None:
    assert log.write(noted({ONE: 1, TWO: quarters})).results[0].code is ResultCode.INVALID
    assert not log.image.silences
