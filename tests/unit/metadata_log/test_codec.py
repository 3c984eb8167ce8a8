"""Every record and condition survives its wire form."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metadata_log import records as r
from metadata_log.codec import (
    decode_transaction,
    encode_transaction,
    result_from_proto,
    result_to_proto,
)
from metadata_log.record_codec import MalformedTransaction
from metadata_log.types import BrokerId, Endpoint, MetadataOffset
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
    st.builds(r.SessionOpened, session_id=ids, timeout_ms=int31, description=texts),
    st.builds(r.SessionClosed, session_id=ids, reason=texts),
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


@pytest.mark.parametrize(
    "encoded",
    [
        b"\xff\xff\xff",
        pb.Transaction(operations=[pb.Operation(records=[pb.Record()])]).SerializeToString(),
        pb.Transaction(operations=[pb.Operation(conditions=[pb.Condition()])]).SerializeToString(),
    ],
)
def test_what_this_version_does_not_know_is_refused(encoded: bytes) -> None:
    with pytest.raises(MalformedTransaction):
        decode_transaction(encoded)


def test_records_are_frozen() -> None:
    record = r.FeatureLevel(name="a", level=1)
    with pytest.raises(AttributeError):
        record.level = 2  # type: ignore[misc]
    assert msgspec.structs.replace(record, level=2).level == 2
