"""UnregisterBroker, AddRaftVoter and RemoveRaftVoter: what they can do here, and what they say."""

from types import SimpleNamespace
from typing import Any, cast

import immutables
import pytest

from quorate.common.types import BrokerEpoch, BrokerId
from quorate.metadata_log.image import BrokerHistory, Image
from quorate_proto.v1 import errors_pb2
from tests.support.followers import ShownImage
from tests.support.kafka_fakes import FakeBrokerInside
from tests.support.kafka_wire import Values
from tests.unit.kafka.conftest import Ask

UNREGISTER, ADD_VOTER, REMOVE_VOTER = 64, 80, 81

DIRECTORY = {"voter_id": 4, "voter_directory_id": None, "cluster_id": None}


@pytest.mark.parametrize(
    ("broker_id", "code", "told"),
    [
        (1, errors_pb2.INVALID_REQUEST, "broker 1 is running"),
        (2, errors_pb2.NONE, None),
        (3, errors_pb2.BROKER_ID_NOT_REGISTERED, "there never was a broker 3"),
    ],
)
async def test_a_broker_that_has_stopped_is_not_registered(
    inside: FakeBrokerInside, ask: Ask, broker_id: int, code: int, told: str | None
) -> None:
    history = BrokerHistory(b"", BrokerEpoch(1))
    brokers = cast("Any", immutables.Map({BrokerId(1): SimpleNamespace()}))
    image = Image(
        brokers=brokers,
        histories=immutables.Map({BrokerId(1): history, BrokerId(2): history}),
    )
    assert isinstance(inside.services.images, ShownImage)
    inside.services.images.show(image)
    response = await ask(UNREGISTER, 0, {"broker_id": broker_id})
    assert response.error_code == code
    assert (response.error_message or "").startswith(told or "")
    assert (response.error_message is None) is (told is None)


@pytest.mark.parametrize(
    ("key", "version", "request_values", "command"),
    [
        (ADD_VOTER, 0, {**DIRECTORY, "timeout": 1, "listeners": []}, "add-voter"),
        (
            ADD_VOTER,
            1,
            {**DIRECTORY, "timeout": 1, "listeners": [], "ack_when_committed": True},
            "add-voter",
        ),
        (REMOVE_VOTER, 0, DIRECTORY, "remove-voter"),
    ],
)
async def test_voters_are_administrators_to_change_and_the_answer_says_how(
    ask: Ask, key: int, version: int, request_values: Values, command: str
) -> None:
    response = await ask(key, version, request_values)
    assert response.error_code == errors_pb2.INVALID_REQUEST
    assert f"quorate quorum {command}" in response.error_message
