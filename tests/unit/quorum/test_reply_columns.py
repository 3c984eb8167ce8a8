"""Replies in columns: what fits into them comes out as it went in."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.common.types import MetadataOffset
from quorate.metadata_log.records import OperationResult, ResultCode, TransactionResult
from quorate.quorum.client.pending_transactions import ReplyColumns, read_columns
from quorate_proto.v1 import quorum_pb2 as pb

int63 = st.integers(0, 2**63 - 1)
taken_effect = st.builds(
    TransactionResult,
    offset=int63.map(MetadataOffset),
    results=st.lists(st.builds(OperationResult, version=int63), max_size=3).map(tuple),
)
replies = st.lists(st.tuples(int63, taken_effect), max_size=6)


@given(replies)
def test_results_survive_their_wire_form(replies: list[tuple[int, TransactionResult]]) -> None:
    columns = ReplyColumns()
    left = columns.take([number for number, _ in replies], [result for _, result in replies])
    assert left == []
    frame = pb.TransactReplyFrame(taken_effect=columns.to_proto())
    read = pb.TransactReplyFrame.FromString(frame.SerializeToString())
    assert list(read_columns(read.taken_effect)) == replies
    assert frame.HasField("taken_effect") == bool(replies)


@pytest.mark.parametrize("code", [code for code in ResultCode if code is not ResultCode.OK])
def test_a_refused_operation_has_no_place_in_them(code: ResultCode) -> None:
    results = (OperationResult(version=1), OperationResult(code=code, detail="why"))
    refused = TransactionResult(offset=MetadataOffset(7), results=results)
    alone = msgspec.structs.replace(refused, results=results[1:])
    columns = ReplyColumns()
    left = columns.take([1, 2, 3], [refused, None, alone])
    assert left == [(1, refused), (2, None), (3, alone)]
    assert columns.to_proto() is None


@pytest.mark.parametrize(
    "taken",
    [
        pb.TakenEffect(request_ids=[1, 2], offsets=[7], operations=[1, 1], versions=[1, 1]),
        pb.TakenEffect(request_ids=[1], offsets=[7], operations=[2], versions=[1]),
        pb.TakenEffect(request_ids=[1], offsets=[7], operations=[1], versions=[1, 2]),
    ],
)
def test_columns_of_other_lengths_are_refused(taken: pb.TakenEffect) -> None:
    with pytest.raises(ValueError, match=r"shorter|versions of"):
        list(read_columns(taken))
