"""The one table from the quorum's refusals to Kafka's error codes."""

import pytest

from quorate.broker.common.errors import CODE_OF_RESULT
from quorate.metadata_log.records import ResultCode
from quorate_proto.v1 import errors_pb2


def test_every_refusal_has_a_code() -> None:
    assert set(CODE_OF_RESULT) == set(ResultCode)


@pytest.mark.parametrize(
    ("refusal", "code"),
    [
        (ResultCode.NEWER_LEADER_EPOCH, errors_pb2.NOT_CONTROLLER),
        (ResultCode.FENCED_LEADER_EPOCH, errors_pb2.FENCED_LEADER_EPOCH),
        (ResultCode.VERSION_CONFLICT, errors_pb2.INVALID_UPDATE_VERSION),
        (ResultCode.INVALID, errors_pb2.INVALID_REQUEST),
        (ResultCode.INELIGIBLE_REPLICA, errors_pb2.INELIGIBLE_REPLICA),
    ],
)
def test_scenario_6_each_refusal_of_an_isr_change_has_a_code_of_its_own(
    refusal: ResultCode, code: int
) -> None:
    assert CODE_OF_RESULT[refusal] == code
