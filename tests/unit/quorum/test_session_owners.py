"""Whose sessions and transactions are, at levels that older voters still read, and above them."""

from types import SimpleNamespace
from typing import Any

import pytest

from quorate.common.types import NO_BROKER, BrokerId, SessionId
from quorate.metadata_log.codec import decode_transaction, encode_transaction
from quorate.metadata_log.features import PROVEN_WRITERS
from quorate.metadata_log.image import METADATA_VERSION, Image
from quorate.metadata_log.records import Transaction
from quorate.quorum.raft.driver import ProposalRun
from quorate.quorum.voter.session_owners import (
    DESCRIPTION_CHARACTERS_MAX,
    session_owner,
    why_not_describe,
)
from quorate.quorum.voter.transact_stream import TransactStream
from quorate_proto.v1 import quorum_pb2 as pb

TWO = BrokerId(2)


def test_a_session_is_bound_to_who_opened_it_once_every_voter_keeps_that() -> None:
    assert session_owner(TWO, PROVEN_WRITERS) == TWO
    assert session_owner(TWO, PROVEN_WRITERS - 1) == NO_BROKER
    assert session_owner(None, PROVEN_WRITERS) == NO_BROKER


@pytest.mark.parametrize(
    "description", ["broker 3", "Broker 3", " broker  3, really", "broker 3\n"]
)
def test_a_broker_is_not_described_as_another(description: str) -> None:
    assert why_not_describe(description, TWO) == "a session of broker 3 is not broker 2's to open"
    assert why_not_describe(description, BrokerId(3)) is None
    assert why_not_describe(description, None) is None, "nobody proves anything in plain text"


def test_a_description_is_for_people_and_short() -> None:
    for description in ("", "bench", "brokers 3", "a broker 3", "x" * DESCRIPTION_CHARACTERS_MAX):
        assert why_not_describe(description, TWO) is None
    for broker_id in (TWO, None):
        assert why_not_describe("x" * (DESCRIPTION_CHARACTERS_MAX + 1), broker_id) is not None


class TakingVoter:
    """A leader that keeps what it is to propose."""

    accepts_proposals = True
    leadership = SimpleNamespace(leader_id=1)

    def __init__(self, metadata_version: int) -> None:
        features = Image().features.set(METADATA_VERSION, metadata_version)
        self.image = Image(features=features)
        self.commands: list[bytes] = []

    def submit(self, run: ProposalRun) -> bool:
        self.commands += [command for command in run.commands if command is not None]
        return True


@pytest.mark.parametrize(
    ("level", "broker_id", "writer"),
    [
        (PROVEN_WRITERS, TWO, TWO),
        (PROVEN_WRITERS, None, NO_BROKER),
        (PROVEN_WRITERS - 1, TWO, NO_BROKER),
    ],
)
def test_a_transaction_carries_who_brought_it_once_every_voter_reads_that(
    level: int, broker_id: BrokerId | None, writer: BrokerId
) -> None:
    voter: Any = TakingVoter(level)
    stream = TransactStream(voter, broker_id)
    claimed = Transaction(operations=(), client_id=SessionId(bytes(16)), writer=BrokerId(7))
    bodies = [encode_transaction(claimed)[6:], encode_transaction(Transaction(operations=()))[2:]]
    encoded = [head + body for head in (b"\x01\x00", b"\x01\x01") for body in bodies]
    stream._take(pb.TransactFrame(transactions=encoded, request_ids=range(len(encoded))))
    taken = [decode_transaction(command) for command in voter.commands]
    assert {one.writer for one in taken} == {writer}
    assert all(one.from_client for one in taken)
