"""Delegation tokens in the metadata log: whose to write, and what may change (KIP-48)."""

import msgspec
import pytest

from quorate.metadata_log.image import METADATA_VERSION
from quorate.metadata_log.paths import token_path, version_at
from quorate.metadata_log.records import (
    AtVersion,
    ControllerEpochIs,
    DelegationTokenRemoved,
    DelegationTokenSet,
    Operation,
    QuorumVoterSet,
    ResultCode,
)
from tests.support.metadata import MetadataLogBuilder, quorum_voter

TOKEN = DelegationTokenSet(
    token_id="t1",
    owner="User:alice",
    requester="User:bob",
    renewers=("User:carol",),
    issue_ms=1_000,
    expiry_ms=2_000,
    max_ms=5_000,
)


@pytest.fixture
def log() -> MetadataLogBuilder:
    log = MetadataLogBuilder()
    log.start_broker(1)
    log.elect_controller(1)
    return log


def changed(**fields: object) -> DelegationTokenSet:
    return msgspec.structs.replace(TOKEN, **fields)


def test_f3_a_token_is_set_renewed_and_removed(log: MetadataLogBuilder) -> None:
    assert log.write_as_controller(TOKEN).ok
    token = log.image.tokens["t1"]
    assert (token.owner, token.requester, token.renewers) == (
        "User:alice",
        "User:bob",
        ("User:carol",),
    )
    assert version_at(log.image, token_path("t1")) == log.image.offset
    assert log.write_as_controller(changed(expiry_ms=5_000)).ok
    assert log.image.tokens["t1"].expiry_ms == 5_000
    assert log.write_as_controller(DelegationTokenRemoved(token_id="t1")).ok
    assert version_at(log.image, token_path("t1")) is None
    assert log.write_as_controller(DelegationTokenRemoved(token_id="t1")).ok, "gone is gone"


def test_f3_only_the_controller_writes_tokens(log: MetadataLogBuilder) -> None:
    for record in (TOKEN, DelegationTokenRemoved(token_id="t1")):
        (result,) = log.write(record).results
        assert "is the controller's to write" in result.detail
    assert not log.image.tokens


def test_b4_tokens_wait_for_their_metadata_version() -> None:
    log = MetadataLogBuilder(begun=False)
    voters = QuorumVoterSet(expected_version=0, voters=(quorum_voter(1),), metadata_version=2)
    assert log.write(voters).ok
    log.start_broker(1)
    log.elect_controller(1)
    assert log.image.features[METADATA_VERSION] == 2
    for record in (TOKEN, DelegationTokenRemoved(token_id="t1")):
        (result,) = log.write_as_controller(record).results
        assert "needs metadata_version 3, and 2 is in force" in result.detail
    assert not log.image.tokens


@pytest.mark.parametrize(
    "record",
    [
        changed(token_id=""),
        changed(token_id="a/b"),
        changed(owner=""),
        changed(expiry_ms=5_001),
        changed(expiry_ms=999),
    ],
)
def test_a_malformed_token_is_refused(log: MetadataLogBuilder, record: DelegationTokenSet) -> None:
    (result,) = log.write_as_controller(record).results
    assert result.code is ResultCode.INVALID
    assert not log.image.tokens


@pytest.mark.parametrize(
    "record",
    [
        changed(owner="User:mallory"),
        changed(requester="User:mallory"),
        changed(renewers=("User:mallory",)),
        changed(max_ms=6_000),
        changed(issue_ms=1_001),
    ],
)
def test_only_the_expiry_of_a_token_changes(
    log: MetadataLogBuilder, record: DelegationTokenSet
) -> None:
    assert log.write_as_controller(TOKEN).ok
    (result,) = log.write_as_controller(record).results
    assert result.code is ResultCode.INVALID
    assert log.image.tokens["t1"].owner == "User:alice"


def test_a_renewal_of_another_version_of_the_token_is_refused(log: MetadataLogBuilder) -> None:
    seen = log.write_as_controller(TOKEN).offset
    assert log.write_as_controller(changed(expiry_ms=1_000)).ok
    held = ControllerEpochIs(controller_epoch=log.image.controller_epoch)
    at_version = AtVersion(path=token_path("t1"), version=seen)
    late = Operation(records=(changed(expiry_ms=5_000),), conditions=(held, at_version))
    assert not log.transact(late).ok
    assert log.image.tokens["t1"].expiry_ms == 1_000


def test_a_token_has_ended_once_its_expiry_or_its_maximum_is_past(log: MetadataLogBuilder) -> None:
    log.write_as_controller(TOKEN)
    token = log.image.tokens["t1"]
    assert [token.expired(now) for now in (1_999, 2_000, 2_001)] == [False, False, True]
