"""Every record and condition survives its wire form."""

import contextlib
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.common.types import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    Endpoint,
    LeaderEpoch,
    MetadataOffset,
    SessionId,
    TopicId,
    VoterId,
)
from quorate.metadata_log import records as r
from quorate.metadata_log.codec import (
    MalformedTransaction,
    as_of_client,
    decode_transaction,
    encode_transaction,
    result_from_proto,
    result_to_proto,
)
from quorate.metadata_log.tree.readable import readable_transaction
from quorate_proto.v1 import metadata_pb2 as pb

int31 = st.integers(0, 2**31 - 1)
int63 = st.integers(0, 2**63 - 1)
ids = st.binary(min_size=16, max_size=16)
texts = st.text(max_size=8)
broker_lists = st.lists(st.integers(0, 9).map(BrokerId), max_size=4).map(tuple)
endpoints = st.builds(Endpoint, texts, st.integers(0, 65_535))
partitions = st.builds(
    r.NewPartition, replicas=broker_lists, leader=st.integers(-1, 9), isr=broker_lists
)
members = st.builds(r.IsrMember, broker_id=int31, broker_epoch=st.integers(-1, 2**40))
voters = st.builds(
    r.QuorumVoter,
    voter_id=int31,
    raft=endpoints,
    grpc=endpoints,
    directory_id=st.just(b"") | ids,
    observer=st.booleans(),
)
records = st.one_of(
    st.builds(
        r.SessionOpened,
        session_id=ids,
        timeout_ms=int31,
        description=texts,
        broker_id=st.integers(-1, 9),
    ),
    st.builds(r.SessionClosed, session_id=ids, reason=texts),
    st.builds(
        r.SessionSilences,
        silences=st.lists(
            st.builds(r.SessionSilence, session_id=ids, quarters=st.integers(0, 4)), max_size=3
        ).map(tuple),
    ),
    st.builds(
        r.ControllerClaim,
        broker_id=int31,
        session_id=ids,
        timestamp_ms=int63,
        controller_epoch=int31,
    ),
    st.builds(r.ControllerRemoved, broker_id=st.integers(-1, 9)),
    st.builds(
        r.BrokerRegistration,
        broker_id=int31,
        session_id=ids,
        incarnation_id=ids,
        kafka=endpoints,
        grpc=endpoints,
        rack=texts,
        log_may_be_lost=st.booleans(),
        inter_broker_protocol_max=int31,
        listeners=st.lists(st.builds(r.Listener, name=texts, endpoint=endpoints), max_size=2).map(
            tuple
        ),
        inter_broker=st.none() | endpoints,
    ),
    st.builds(
        r.TopicCreated,
        name=texts,
        topic_id=ids,
        partitions=st.lists(partitions, max_size=3).map(tuple),
        controller_id=int31,
        controller_epoch=int31,
    ),
    st.builds(r.BrokerAdmitted, broker_id=int31, broker_epoch=int63),
    st.builds(r.TopicRemoved, name=texts, topic_id=ids),
    st.builds(r.TopicDeletionPending, name=texts, topic_id=ids),
    st.builds(
        r.PartitionChange,
        topic=texts,
        topic_id=ids,
        partition=int31,
        expected_version=int63,
        leader=st.integers(-1, 9),
        leader_epoch=int31,
        isr=broker_lists,
        controller_id=int31,
        controller_epoch=int31,
    ),
    st.builds(
        r.PartitionReassignment,
        topic=texts,
        topic_id=ids,
        partition=int31,
        expected_version=int63,
        replicas=broker_lists,
        leader=st.integers(-1, 9),
        leader_epoch=int31,
        isr=broker_lists,
        target=broker_lists,
        original=broker_lists,
        controller_id=int31,
        controller_epoch=int31,
    ),
    st.builds(
        r.PartitionAdditionPending,
        topic=texts,
        topic_id=ids,
        first_partition=int31,
        replicas=st.lists(broker_lists, max_size=3).map(tuple),
    ),
    st.builds(
        r.PartitionsAdded,
        topic=texts,
        topic_id=ids,
        first_partition=int31,
        partitions=st.lists(partitions, max_size=3).map(tuple),
        controller_id=int31,
        controller_epoch=int31,
    ),
    st.builds(r.PartitionRemovalPending, topic=texts, topic_id=ids, first_partition=int31),
    st.builds(r.PartitionsRemoved, topic=texts, topic_id=ids, first_partition=int31),
    st.builds(
        r.IsrChange,
        topic=texts,
        topic_id=ids,
        partition=int31,
        expected_version=int63,
        leader=int31,
        leader_broker_epoch=int63,
        leader_epoch=int31,
        isr=st.lists(members, max_size=3).map(tuple),
    ),
    *(
        st.builds(
            kind,
            resource_type=int31,
            pattern_type=int31,
            resource_name=texts,
            principal=texts,
            host=texts,
            operation=int31,
            permission=int31,
        )
        for kind in (r.AclAdded, r.AclRemoved)
    ),
    st.builds(
        r.ConfigSet,
        entity_type=texts,
        entity_name=texts,
        key=texts,
        value=st.none() | texts,
    ),
    st.builds(r.FeatureLevel, name=texts, level=int31),
    st.builds(r.ProducerIdBlock, next_producer_id=int63),
    st.builds(
        r.ClientQuotaSet,
        user=st.none() | texts,
        client_id=st.none() | texts,
        key=texts,
        value=st.none() | st.floats(allow_nan=False),
    ),
    st.builds(r.IpQuotaSet, ip=texts, key=texts, value=st.none() | st.floats(allow_nan=False)),
    st.builds(r.ScramDecoyKeySet, key=st.binary(max_size=40)),
    st.builds(
        r.ScramCredentialSet,
        user=texts,
        mechanism=int31,
        credential=st.builds(
            r.ScramCredential, salt=ids, stored_key=ids, server_key=ids, iterations=int31
        ),
    ),
    st.builds(r.ScramCredentialRemoved, user=texts, mechanism=int31),
    st.builds(
        r.DelegationTokenSet,
        token_id=texts,
        owner=texts,
        requester=texts,
        renewers=st.lists(texts, max_size=2).map(tuple),
        issue_ms=int63,
        expiry_ms=int63,
        max_ms=int63,
    ),
    st.builds(r.DelegationTokenRemoved, token_id=texts),
    st.builds(
        r.ReplicasLost,
        broker_id=int31,
        session_id=ids,
        replicas=st.lists(
            st.builds(r.LostReplica, topic_id=ids, partition=st.integers(0, 3)), max_size=2
        ).map(tuple),
    ),
    st.builds(
        r.FolderMarks,
        marks=st.lists(st.builds(r.FolderMark, session_id=ids, mark=int63), max_size=2).map(tuple),
    ),
    st.builds(
        r.PipelineSet,
        name=texts,
        expected_version=int63,
        run_epoch=int63,
        sink=texts,
        topics=st.lists(
            st.builds(
                r.PipelineTopicOffsets,
                topic=texts,
                topic_id=ids,
                offsets=st.lists(int63, max_size=3).map(tuple),
            ),
            max_size=2,
        ).map(tuple),
        run=st.builds(
            r.PipelineRun,
            owner=texts,
            started_ms=int63,
            lease_until_ms=int63,
            commit_epoch=int63,
            commit=int63,
            committed_ms=int63,
            rows=int63,
        ),
        rewound=st.booleans(),
    ),
    st.builds(r.PipelineRemoved, name=texts, expected_version=int63),
    st.builds(
        r.ChangeNote,
        principal=texts,
        client_host=texts,
        client_id=texts,
        api=texts,
        forwarded_by=int31.map(BrokerId),
    ),
    st.builds(
        r.QuorumVoterSet, expected_version=int63, voters=st.lists(voters, max_size=3).map(tuple)
    ),
)
conditions = st.one_of(
    st.builds(r.ControllerEpochIs, controller_epoch=int31),
    st.builds(r.Absent, path=texts),
    st.builds(r.AtVersion, path=texts, version=int63),
    st.builds(r.SessionAlive, session_id=ids),
)
operations = st.builds(
    r.Operation,
    records=st.lists(records, max_size=3).map(tuple),
    conditions=st.lists(conditions, max_size=2).map(tuple),
)
transactions = st.builds(
    r.Transaction,
    operations=st.lists(operations, max_size=3).map(tuple),
    atomic=st.booleans(),
    client_id=st.just(b"") | ids,
    sequence=int63,
    low_water=int63,
    timestamp_ms=int63,
    from_client=st.booleans(),
)


@given(transactions)
def test_a_transaction_survives_its_wire_form(transaction: r.Transaction) -> None:
    assert decode_transaction(encode_transaction(transaction)) == transaction


def test_the_strategies_cover_every_record_there_is() -> None:
    covered = {strategy.wrapped_strategy.target for strategy in records.original_strategies}  # type: ignore[attr-defined]
    assert covered == set(r.Record.__args__)


@given(
    st.lists(
        st.builds(
            r.OperationResult, code=st.sampled_from(r.ResultCode), detail=texts, version=int63
        ),
        max_size=3,
    )
)
def test_a_result_survives_its_wire_form(results: list[r.OperationResult]) -> None:
    result = r.TransactionResult(offset=MetadataOffset(7), results=tuple(results))
    assert result_from_proto(result_to_proto(result)) == result


def test_result_codes_have_the_numbers_of_the_wire() -> None:
    assert {code.name: code.value for code in r.ResultCode} == {
        name.removeprefix("RESULT_"): number for name, number in pb.ResultCode.items()
    }


QUORUM, CLIENT = b"\x01\x00", b"\x01\x01"


def encoded_fields(*fields: object, head: bytes = QUORUM) -> bytes:
    return head + msgspec.msgpack.encode(fields)


@pytest.mark.parametrize(
    "encoded",
    [
        b"",
        QUORUM[:1],
        QUORUM,
        QUORUM + b"\xff\xff\xff",
        encoded_fields([], head=b""),
        encoded_fields([], head=b"\x01\x02"),
        encoded_fields("no operations"),
        pytest.param(encoded_fields([[[[99]]]]), id="unknown record"),
        pytest.param(encoded_fields([[[], [[99]]]]), id="unknown condition"),
        pytest.param(encoded_fields([[[[12, "f"]]]]), id="a field is missing"),
        pytest.param(encoded_fields([[[[12, b"f", 1]]]]), id="wrong type"),
        pytest.param(encoded_fields([[[[12, "f", 1 << 31]]]]), id="level out of range"),
        pytest.param(encoded_fields([[[[4, -(1 << 31) - 1]]]]), id="broker id out of range"),
        pytest.param(encoded_fields([], True, b"", 1 << 63), id="sequence out of range"),
        pytest.param(QUORUM + b"\xdd\xff\xff\xff\xff", id="four billion fields"),
        pytest.param(encoded_fields([]) + b"\xc0", id="something behind it"),
    ],
)
def test_what_this_version_does_not_know_is_refused(encoded: bytes) -> None:
    with pytest.raises(MalformedTransaction):
        decode_transaction(encoded)


def test_another_format_is_named() -> None:
    with pytest.raises(MalformedTransaction, match="format 7, this version reads 1"):
        decode_transaction(encoded_fields([], head=b"\x07\x00"))


@given(transactions, st.data())
def test_hostile_bytes_are_refused_or_read_never_more(
    transaction: r.Transaction, data: st.DataObject
) -> None:
    encoded = bytearray(encode_transaction(transaction))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(encoded) - 1))
        encoded[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=6))
        if not encoded:
            break
    with contextlib.suppress(MalformedTransaction):
        read = decode_transaction(bytes(encoded))
        assert decode_transaction(encode_transaction(read)) == read


def test_a_newer_version_may_add_fields_at_the_end() -> None:
    level = r.FeatureLevel(name="f", level=3)
    encoded = encoded_fields([[[[12, "f", 3, "more"]], [], "more"]], True, b"", 0, 0, 0, False, 1)
    assert decode_transaction(encoded).operations == (r.Operation(records=(level,)),)


@pytest.mark.parametrize("said", [True, False])
@pytest.mark.parametrize("head", [QUORUM, CLIENT, b"\x01\x07"])
def test_a_client_cannot_pass_for_the_quorum(said: bool, head: bytes) -> None:
    crafted = encoded_fields([], True, b"", 0, 0, 0, said, head=head)
    assert decode_transaction(as_of_client(crafted)).from_client


SESSION, TOPIC, FOLDER = SessionId(b"s" * 16), TopicId(b"t" * 16), b"i" * 16
BROKERS = (BrokerId(1), BrokerId(2))
RECORDS_ON_DISK: dict[int, tuple[r.Record, str]] = {
    1: (
        r.SessionOpened(
            session_id=SESSION, timeout_ms=6_000, description="b", broker_id=BrokerId(2)
        ),
        "9501c41073737373737373737373737373737373cd1770a16202",
    ),
    2: (
        r.SessionClosed(session_id=SESSION, reason="expired"),
        "9302c41073737373737373737373737373737373a765787069726564",
    ),
    3: (
        r.ControllerClaim(
            broker_id=BrokerId(1),
            session_id=SESSION,
            timestamp_ms=9,
            controller_epoch=ControllerEpoch(2),
        ),
        "950301c410737373737373737373737373737373730902",
    ),
    4: (r.ControllerRemoved(broker_id=BrokerId(-1)), "9204ff"),
    5: (
        r.BrokerRegistration(
            broker_id=BrokerId(1),
            session_id=SESSION,
            incarnation_id=FOLDER,
            kafka=Endpoint("k", 1),
            grpc=Endpoint("g", 2),
            rack="r",
            log_may_be_lost=True,
            inter_broker_protocol_max=2,
            metadata_version_max=3,
            listeners=(r.Listener(name="S", endpoint=Endpoint("l", 3)),),
            inter_broker=Endpoint("i", 4),
        ),
        (
            "9c0501c41073737373737373737373737373737373c4106969696969696969696969696969696992"
            "a16b0192a16702a172c302039192a15392a16c0392a16904"
        ),
    ),
    6: (
        r.TopicCreated(
            name="t",
            topic_id=TOPIC,
            partitions=(r.NewPartition(replicas=BROKERS, leader=BrokerId(1), isr=BROKERS[:1]),),
            controller_id=BrokerId(1),
            controller_epoch=ControllerEpoch(2),
        ),
        "9606a174c4107474747474747474747474747474747491939201020191010102",
    ),
    7: (
        r.TopicRemoved(name="t", topic_id=TOPIC),
        "9307a174c41074747474747474747474747474747474",
    ),
    8: (
        r.TopicDeletionPending(name="t", topic_id=TOPIC),
        "9308a174c41074747474747474747474747474747474",
    ),
    9: (
        r.PartitionChange(
            topic="t",
            topic_id=TOPIC,
            partition=3,
            expected_version=4,
            leader=BrokerId(2),
            leader_epoch=LeaderEpoch(5),
            isr=BROKERS,
            controller_id=BrokerId(1),
            controller_epoch=ControllerEpoch(2),
        ),
        "9a09a174c41074747474747474747474747474747474030402059201020102",
    ),
    10: (
        r.IsrChange(
            topic="t",
            topic_id=TOPIC,
            partition=3,
            expected_version=4,
            leader=BrokerId(1),
            leader_broker_epoch=BrokerEpoch(8),
            leader_epoch=LeaderEpoch(5),
            isr=(r.IsrMember(broker_id=BrokerId(1)),),
        ),
        "990aa174c410747474747474747474747474747474740304010805919201ff",
    ),
    11: (
        r.ConfigSet(entity_type="topic", entity_name="t", key="k", value=None),
        "950ba5746f706963a174a16bc0",
    ),
    12: (r.FeatureLevel(name="f", level=2), "930ca16602"),
    13: (r.ProducerIdBlock(next_producer_id=1_000), "920dcd03e8"),
    14: (r.BrokerAdmitted(broker_id=BrokerId(1), broker_epoch=BrokerEpoch(8)), "930e0108"),
    15: (
        r.QuorumVoterSet(
            expected_version=1,
            voters=(
                r.QuorumVoter(
                    voter_id=VoterId(1),
                    raft=Endpoint("r", 1),
                    grpc=Endpoint("g", 2),
                    directory_id=FOLDER,
                    observer=True,
                ),
            ),
            metadata_version=3,
        ),
        "940f0191950192a1720192a16702c41069696969696969696969696969696969c303",
    ),
    16: (
        r.SessionSilences(silences=(r.SessionSilence(session_id=SESSION, quarters=3),)),
        "92109192c4107373737373737373737373737373737303",
    ),
    17: (
        r.PartitionReassignment(
            topic="t",
            topic_id=TOPIC,
            partition=3,
            expected_version=4,
            replicas=BROKERS,
            leader=BrokerId(2),
            leader_epoch=LeaderEpoch(5),
            isr=BROKERS[1:],
            target=BROKERS[:1],
            original=BROKERS[1:],
            controller_id=BrokerId(1),
            controller_epoch=ControllerEpoch(2),
        ),
        "9d11a174c41074747474747474747474747474747474030492010202059102910191020102",
    ),
    30: (
        r.AclAdded(
            resource_type=2,
            pattern_type=3,
            resource_name="t",
            principal="User:a",
            host="*",
            operation=4,
            permission=3,
        ),
        "981e0203a174a6557365723a61a12a0403",
    ),
    31: (
        r.AclRemoved(
            resource_type=2,
            pattern_type=3,
            resource_name="t",
            principal="User:a",
            host="*",
            operation=4,
            permission=3,
        ),
        "981f0203a174a6557365723a61a12a0403",
    ),
    20: (
        r.PartitionAdditionPending(
            topic="t", topic_id=TOPIC, first_partition=3, replicas=(BROKERS, BROKERS[:1])
        ),
        "9514a174c4107474747474747474747474747474747403929201029101",
    ),
    21: (
        r.PartitionsAdded(
            topic="t",
            topic_id=TOPIC,
            first_partition=3,
            partitions=(r.NewPartition(replicas=BROKERS, leader=BrokerId(2), isr=BROKERS[1:]),),
            controller_id=BrokerId(1),
            controller_epoch=ControllerEpoch(2),
        ),
        "9715a174c410747474747474747474747474747474740391939201020291020102",
    ),
    22: (
        r.PartitionRemovalPending(topic="t", topic_id=TOPIC, first_partition=3),
        "9416a174c4107474747474747474747474747474747403",
    ),
    23: (
        r.PartitionsRemoved(topic="t", topic_id=TOPIC, first_partition=3),
        "9417a174c4107474747474747474747474747474747403",
    ),
    32: (
        r.ClientQuotaSet(user="", client_id=None, key="k", value=1.5),
        "9520a0c0a16bcb3ff8000000000000",
    ),
    33: (
        r.ScramCredentialSet(
            user="u",
            mechanism=1,
            credential=r.ScramCredential(
                salt=b"s", stored_key=b"c", server_key=b"k", iterations=4_096
            ),
        ),
        "9421a1750194c40173c40163c4016bcd1000",
    ),
    34: (r.ScramCredentialRemoved(user="u", mechanism=1), "9322a17501"),
    35: (
        r.DelegationTokenSet(
            token_id="t",
            owner="User:a",
            requester="User:b",
            renewers=("User:c",),
            issue_ms=1,
            expiry_ms=2,
            max_ms=1_000,
        ),
        "9823a174a6557365723a61a6557365723a6291a6557365723a630102cd03e8",
    ),
    36: (r.DelegationTokenRemoved(token_id="t"), "9224a174"),
    37: (
        r.ChangeNote(
            principal="User:a",
            client_host="h",
            client_id="c",
            api="A",
            forwarded_by=BrokerId(2),
        ),
        "9625a6557365723a61a168a163a14102",
    ),
    38: (
        r.PipelineSet(
            name="p",
            expected_version=1,
            run_epoch=2,
            sink="s",
            topics=(r.PipelineTopicOffsets(topic="t", topic_id=TOPIC, offsets=(3, -1)),),
            run=r.PipelineRun(
                owner="o",
                started_ms=4,
                lease_until_ms=5,
                commit_epoch=6,
                commit=7,
                committed_ms=8,
                rows=9,
            ),
            rewound=True,
        ),
        "9826a1700102a1739193a174c410747474747474747474747474747474749203ff97a16f040506070809c3",
    ),
    39: (r.PipelineRemoved(name="p", expected_version=1), "9327a17001"),
    40: (
        r.ReplicasLost(
            broker_id=BrokerId(2),
            session_id=SESSION,
            replicas=(r.LostReplica(topic_id=TOPIC, partition=3),),
        ),
        "942802c410737373737373737373737373737373739192c4107474747474747474747474747474747403",
    ),
    41: (
        r.FolderMarks(marks=(r.FolderMark(session_id=SESSION, mark=7),)),
        "92299192c4107373737373737373737373737373737307",
    ),
    42: (r.ScramDecoyKeySet(key=b"k"), "922ac4016b"),
    43: (r.IpQuotaSet(ip="", key="k", value=1.5), "942ba0a16bcb3ff8000000000000"),
}


EARLIER_FORMS: dict[str, tuple[int, str, dict[str, Any]]] = {
    "registration without metadata version": (
        5,
        "990501c41073737373737373737373737373737373c4106969696969696969696969696969696992"
        "a16b0192a16702a172c302",
        {"metadata_version_max": 1, "listeners": (), "inter_broker": None},
    ),
    "registration without listeners": (
        5,
        "9a0501c41073737373737373737373737373737373c4106969696969696969696969696969696992"
        "a16b0192a16702a172c30203",
        {"listeners": (), "inter_broker": None},
    ),
    "registration without an inter-broker listener": (
        5,
        "9b0501c41073737373737373737373737373737373c4106969696969696969696969696969696992"
        "a16b0192a16702a172c302039192a15392a16c03",
        {"inter_broker": None},
    ),
    "sessions of no broker": (
        1,
        "9401c41073737373737373737373737373737373cd1770a162",
        {"broker_id": -1},
    ),
    "voters without metadata version": (
        15,
        "930f0191950192a1720192a16702c41069696969696969696969696969696969c3",
        {"metadata_version": 1},
    ),
}
"""Records before they grew, and what the fields that they lack are taken for."""


def test_every_record_has_its_own_tag() -> None:
    tags = [kind.__struct_config__.tag for kind in r.Record.__args__]
    assert sorted(tags) == sorted(RECORDS_ON_DISK)


@pytest.mark.parametrize("tag", RECORDS_ON_DISK)
def test_records_on_disk_stay_what_they_are(tag: int) -> None:
    """A tag is never used again; a record may only grow at its end."""
    record, golden = RECORDS_ON_DISK[tag]
    assert msgspec.msgpack.encode(record).hex() == golden
    written = encoded_fields([[[msgspec.Raw(bytes.fromhex(golden))]]])
    assert decode_transaction(written).operations[0].records == (record,)


@pytest.mark.parametrize("form", EARLIER_FORMS)
def test_b4_records_of_an_earlier_version_are_read(form: str) -> None:
    tag, stored, taken_for = EARLIER_FORMS[form]
    written = encoded_fields([[[msgspec.Raw(bytes.fromhex(stored))]]])
    (record,) = decode_transaction(written).operations[0].records
    assert record == msgspec.structs.replace(RECORDS_ON_DISK[tag][0], **taken_for)


def test_transaction_on_disk_stays_what_it_is() -> None:
    conditions: tuple[r.Condition, ...] = (
        r.ControllerEpochIs(controller_epoch=ControllerEpoch(3)),
        r.Absent(path="/controller"),
        r.AtVersion(path="/brokers/ids/1", version=7),
        r.SessionAlive(session_id=SESSION),
    )
    transaction = r.Transaction(
        operations=(r.Operation(records=(), conditions=conditions),),
        atomic=False,
        client_id=SESSION,
        sequence=5,
        low_water=4,
        timestamp_ms=1_000,
    )
    fields = (
        "919290949201039202ab2f636f6e74726f6c6c65729303ae2f62726f6b6572732f6964732f"
        "31079204c41073737373737373737373737373737373c2c410737373737373737373737373737373"
        "730504cd03e8c2"
    )
    assert encode_transaction(transaction).hex() == f"010098{fields}ff"
    earlier = bytes.fromhex(f"010097{fields}")  # Before the writer was noted.
    assert decode_transaction(earlier) == transaction
    by_broker = msgspec.structs.replace(transaction, from_client=True, writer=BrokerId(2))
    noted = f"010200000002{'98' + fields[:-2]}c302"
    assert encode_transaction(by_broker).hex() == noted
    assert decode_transaction(bytes.fromhex(noted)) == by_broker


def test_kinds_have_the_names_that_watches_use() -> None:
    assert r.kind_of(r.FeatureLevel(name="f", level=1)) == "feature_level"


def test_secrets_are_in_no_repr_and_in_no_readable_form() -> None:
    credential = r.ScramCredential(
        salt=b"PEPPER", stored_key=b"HIDDEN", server_key=b"BURIED", iterations=4_096
    )
    record = r.ScramCredentialSet(user="alice", mechanism=1, credential=credential)
    transaction = r.Transaction(operations=(r.Operation(records=(record,)),))
    result = r.TransactionResult(offset=MetadataOffset(1), results=(r.OperationResult(),))
    shown = [
        repr(transaction),
        f"{record}",
        json.dumps(readable_transaction(MetadataOffset(1), transaction, result)),
    ]
    for text in shown:
        assert "alice" in text
        assert "4096" in text
        for secret in (b"PEPPER", b"HIDDEN", b"BURIED"):
            assert secret.decode() not in text
            assert secret.hex() not in text


def test_records_are_frozen() -> None:
    record = r.FeatureLevel(name="a", level=1)
    with pytest.raises(AttributeError):
        record.level = 2  # type: ignore[misc]
    assert msgspec.structs.replace(record, level=2).level == 2
