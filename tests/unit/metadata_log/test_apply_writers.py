"""What a broker may write that has proved which broker it is, and in whose sessions."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from quorate.common.types import NO_BROKER, BrokerEpoch, BrokerId, ControllerEpoch, Endpoint
from quorate.metadata_log.codec import (
    MalformedTransaction,
    as_of_client,
    decode_transaction,
    encode_transaction,
)
from quorate.metadata_log.features import NEWEST_METADATA_VERSION
from quorate.metadata_log.handover import hand_over
from quorate.metadata_log.paths import ADMINISTRATION, broker_path
from quorate.metadata_log.records import (
    AtVersion,
    BrokerRegistration,
    ConfigSet,
    ControllerClaim,
    ControllerEpochIs,
    ControllerRemoved,
    FeatureLevel,
    FolderMarks,
    IsrChange,
    IsrMember,
    Operation,
    QuorumVoterSet,
    ReplicasLost,
    ResultCode,
    SessionClosed,
    SessionOpened,
    SessionSilences,
    Transaction,
    TransactionResult,
)
from quorate.metadata_log.rules.table import RULES
from tests.support.metadata import MetadataLogBuilder, session_of


@pytest.fixture
def log() -> MetadataLogBuilder:
    """Brokers 1 to 3 have sessions of their own, 1 is the controller, 2 leads orders-0."""
    log = MetadataLogBuilder()
    for broker_id in (1, 2, 3):
        log.start_broker(broker_id)
    sessions = {
        key: msgspec.structs.replace(session, broker_id=BrokerId(number))
        for number in (1, 2, 3)
        for key, session in log.image.sessions.items()
        if key == session_of(number)
    }
    log.image = msgspec.structs.replace(log.image, sessions=log.image.sessions.update(sessions))
    log.elect_controller(1)
    log.admit_all()
    log.create_topic("orders", (2, 3))
    return log


def by(
    log: MetadataLogBuilder, writer: int, *operations: Operation, session: int | None = None
) -> TransactionResult:
    """Write with that broker's certificate, under its own session or another broker's."""
    transaction = Transaction(
        operations=operations,
        client_id=session_of(writer if session is None else session),
        sequence=log.image.offset,
        from_client=True,
        writer=BrokerId(writer),
    )
    return log.apply(transaction).result


def one(*records: Any) -> Operation:  # noqa: ANN401 - any record
    return Operation(records=records)


def registration(broker_id: int, session: int) -> BrokerRegistration:
    return BrokerRegistration(
        broker_id=BrokerId(broker_id),
        session_id=session_of(session),
        incarnation_id=f"process {broker_id:3}{0:5}".encode(),
        kafka=Endpoint("elsewhere", 9092),
        grpc=Endpoint("elsewhere", 9192),
        metadata_version_max=NEWEST_METADATA_VERSION,
    )


def isr_change(log: MetadataLogBuilder, leader: int) -> IsrChange:
    topic = log.image.topics["orders"]
    leaf = topic.partitions[0]
    return IsrChange(
        topic="orders",
        topic_id=topic.topic_id,
        partition=0,
        leader=BrokerId(leader),
        leader_epoch=leaf.leader_epoch,
        leader_broker_epoch=log.image.brokers[BrokerId(leader)].epoch,
        expected_version=leaf.version,
        isr=(IsrMember(broker_id=BrokerId(2), broker_epoch=BrokerEpoch(0)),),
    )


def epoch(log: MetadataLogBuilder) -> ControllerEpochIs:
    return ControllerEpochIs(controller_epoch=log.image.controller_epoch)


def config(log: MetadataLogBuilder) -> Operation:
    change = ConfigSet(entity_type="topic", entity_name="orders", key="retention.ms", value="1")
    return Operation(records=(change,), conditions=(epoch(log),))


def claim(broker_id: int, after: int) -> ControllerClaim:
    return ControllerClaim(
        broker_id=BrokerId(broker_id),
        session_id=session_of(broker_id),
        timestamp_ms=1,
        controller_epoch=ControllerEpoch(after + 1),
    )


Make = Callable[[MetadataLogBuilder], Operation]

FOREIGN: dict[str, tuple[int, Make, str]] = {
    "another's registration": (
        2,
        lambda log: one(registration(3, 2)),
        "BrokerRegistration of broker 3 is not broker 2's to write",
    ),
    "its registration under another's session": (
        2,
        lambda log: one(registration(2, 3)),
        "is broker 3's, not broker 2's",
    ),
    "another's lost replicas": (
        2,
        lambda log: one(ReplicasLost(broker_id=BrokerId(3), session_id=session_of(3), replicas=())),
        "ReplicasLost of broker 3 is not broker 2's to write",
    ),
    "the ISR of another's partition": (
        3,
        lambda log: one(isr_change(log, 2)),
        "IsrChange of broker 2 is not broker 3's to write",
    ),
    "a claim for another": (
        2,
        lambda log: one(claim(3, log.image.controller_epoch)),
        "ControllerClaim of broker 3 is not broker 2's to write",
    ),
    "the end of another's office": (
        2,
        lambda log: one(ControllerRemoved(broker_id=BrokerId(1))),
        "ControllerRemoved of broker 1 is not broker 2's to write",
    ),
    "the end of anybody's office": (
        2,
        lambda log: one(ControllerRemoved(broker_id=NO_BROKER)),
        "ControllerRemoved of broker -1 is not broker 2's to write",
    ),
    "an office handed over": (
        2,
        lambda log: hand_over(log.image, BrokerId(3), 1),
        "is not broker 2's to write",
    ),
    "what the controller decides": (
        2,
        config,
        "ConfigSet is the controller's to write, and broker 2 is not the controller",
    ),
    "a session": (
        2,
        lambda log: one(SessionOpened(session_id=session_of(9), timeout_ms=6_000)),
        "SessionOpened is the quorum's own to write",
    ),
    "another's end": (
        2,
        lambda log: one(SessionClosed(session_id=session_of(3))),
        "SessionClosed is the quorum's own to write",
    ),
    "silences": (2, lambda log: one(SessionSilences(silences=())), "the quorum's own to write"),
    "marks": (2, lambda log: one(FolderMarks(marks=())), "the quorum's own to write"),
    "voters": (
        2,
        lambda log: one(QuorumVoterSet(expected_version=0, voters=())),
        "the quorum's own to write",
    ),
}

OWN: dict[str, tuple[int, Make]] = {
    "its registration": (2, lambda log: one(registration(2, 2))),
    "its lost replicas": (
        2,
        lambda log: one(ReplicasLost(broker_id=BrokerId(2), session_id=session_of(2), replicas=())),
    ),
    "the ISR of its partition": (2, lambda log: one(isr_change(log, 2))),
    "the end of its own office": (1, lambda log: one(ControllerRemoved(broker_id=BrokerId(1)))),
    "its office handed over": (1, lambda log: hand_over(log.image, BrokerId(3), 1)),
    "what the controller decides": (1, config),
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_f5_a_broker_writes_nothing_that_is_anothers(log: MetadataLogBuilder, kind: str) -> None:
    writer, make, why = FOREIGN[kind]
    before = log.image
    (refused,) = by(log, writer, make(log)).results
    assert refused.code is ResultCode.INVALID
    assert why in refused.detail
    changed = msgspec.structs.replace(log.image, offset=before.offset, results=before.results)
    assert changed == before


@pytest.mark.parametrize("kind", OWN)
def test_a_broker_writes_what_is_its_own(log: MetadataLogBuilder, kind: str) -> None:
    writer, make = OWN[kind]
    (written,) = by(log, writer, make(log)).results
    assert written.ok, written.detail


def test_a_vacant_office_is_claimed_in_the_brokers_own_name(log: MetadataLogBuilder) -> None:
    log.write(ControllerRemoved(broker_id=BrokerId(1)))
    assert not by(log, 2, one(claim(3, log.image.controller_epoch))).ok
    assert by(log, 2, one(claim(2, log.image.controller_epoch))).ok


@pytest.mark.parametrize("kind", OWN)
def test_a_broker_writes_nothing_under_anothers_session(log: MetadataLogBuilder, kind: str) -> None:
    writer, make = OWN[kind]
    other = 3 if writer != 3 else 1
    (refused,) = by(log, writer, make(log), session=other).results
    assert refused.code is ResultCode.INVALID
    assert f"is broker {other}'s, not broker {writer}'s" in refused.detail
    assert log.image.results.get(session_of(other)) is None, "nor takes up its sequences"


def test_what_brokers_write_themselves_at_level_1_is_bound_to_their_registration(
    log: MetadataLogBuilder,
) -> None:
    log.write_as_controller(FeatureLevel(name="inter_broker_protocol", level=1))
    change = ConfigSet(entity_type="topic", entity_name="orders", key="retention.ms", value="1")

    def answered_by(broker_id: int) -> Operation:
        return Operation(
            records=(change,),
            conditions=(
                AtVersion(path=ADMINISTRATION, version=log.image.administered),
                AtVersion(
                    path=broker_path(BrokerId(broker_id)),
                    version=log.image.brokers[BrokerId(broker_id)].epoch,
                ),
            ),
        )

    (refused,) = by(log, 2, answered_by(3)).results
    assert "broker 2 is not the controller" in refused.detail
    (written,) = by(log, 2, answered_by(2)).results
    assert written.ok, written.detail


def test_without_a_certificate_nothing_is_bound(log: MetadataLogBuilder) -> None:
    transaction = Transaction(
        operations=(one(isr_change(log, 2)),), client_id=session_of(3), from_client=True
    )
    assert log.apply(transaction).result.ok


def test_every_kind_of_record_says_who_may_write_it() -> None:
    """A new kind that says nothing is the quorum's own, and no broker can write it."""
    by_quorum = {SessionOpened, SessionClosed, SessionSilences, FolderMarks, QuorumVoterSet}
    for kind, rule in RULES.items():
        of_quorum = not rule.needs_controller and rule.names_broker is None
        assert of_quorum == (kind in by_quorum), kind.__name__
        assert not (rule.needs_controller and rule.names_broker), kind.__name__


# --- the voter's note on the wire -----------------------------------------------------------------


def test_the_voter_notes_the_writer_and_nobody_else() -> None:
    said = Transaction(operations=(), writer=BrokerId(7), from_client=True)
    crafted = encode_transaction(said)
    assert decode_transaction(crafted).writer == 7
    with pytest.raises(MalformedTransaction):
        decode_transaction(as_of_client(crafted, BrokerId(2)))
    with pytest.raises(MalformedTransaction):
        decode_transaction(as_of_client(crafted))
    plain = encode_transaction(msgspec.structs.replace(said, writer=NO_BROKER))
    assert decode_transaction(as_of_client(plain, BrokerId(2))).writer == 2
    assert decode_transaction(as_of_client(plain)).writer == NO_BROKER


def test_a_writer_that_the_body_names_is_not_believed() -> None:
    encoded = encode_transaction(Transaction(operations=(), writer=BrokerId(7), from_client=True))
    body = encoded[6:]
    for head in (b"\x01\x00", b"\x01\x01"):
        assert decode_transaction(head + body).writer == NO_BROKER
    assert decode_transaction(as_of_client(b"\x01\x01" + body, BrokerId(2))).writer == 2
