"""SCRAM credentials in the image: whose, for which mechanism, and nothing that cannot be one."""

import msgspec
import pytest

from quorate.metadata_log.image import ScramKey
from quorate.metadata_log.records import (
    FeatureLevel,
    Record,
    ResultCode,
    ScramCredential,
    ScramCredentialRemoved,
    ScramCredentialSet,
)
from tests.support.metadata import MetadataLogBuilder, scram_credential

ALICE = ScramKey("alice", 1)


@pytest.fixture
def log() -> MetadataLogBuilder:
    log = MetadataLogBuilder()
    log.start_broker(1)
    log.elect_controller(1)
    return log


def credential_set(
    credential: ScramCredential | None = None, user: str = "alice", mechanism: int = 1
) -> ScramCredentialSet:
    return ScramCredentialSet(
        user=user, mechanism=mechanism, credential=credential or scram_credential(mechanism)
    )


def code(log: MetadataLogBuilder, record: Record) -> ResultCode:
    return log.write_as_controller(record).results[0].code


def test_f3_a_credential_is_set_replaced_and_removed_by_mechanism(log: MetadataLogBuilder) -> None:
    stronger = scram_credential(iterations=8_192)
    assert code(log, credential_set()) is ResultCode.OK
    assert code(log, credential_set(mechanism=2)) is ResultCode.OK
    assert code(log, credential_set(stronger)) is ResultCode.OK
    assert log.image.scram[ALICE] == stronger
    assert log.image.scram[ScramKey("alice", 2)] == scram_credential(2)
    assert code(log, ScramCredentialRemoved(user="alice", mechanism=1)) is ResultCode.OK
    assert set(log.image.scram) == {ScramKey("alice", 2)}


def test_what_is_not_there_is_not_removed(log: MetadataLogBuilder) -> None:
    removal = ScramCredentialRemoved(user="alice", mechanism=1)
    assert code(log, removal) is ResultCode.CONDITION_FAILED


def changed(**fields: object) -> ScramCredential:
    return msgspec.structs.replace(scram_credential(), **fields)


@pytest.mark.parametrize(
    "record",
    [
        credential_set(user=""),
        credential_set(mechanism=0),
        credential_set(mechanism=3),
        credential_set(scram_credential(2), mechanism=1),
        credential_set(changed(server_key=b"")),
        credential_set(changed(stored_key=bytes(31))),
        credential_set(changed(salt=b"")),
        credential_set(changed(iterations=4_095)),
        credential_set(changed(iterations=16_385)),
    ],
)
def test_what_can_be_no_credential_is_refused(
    log: MetadataLogBuilder, record: ScramCredentialSet
) -> None:
    assert code(log, record) is ResultCode.INVALID
    assert not log.image.scram


def test_f3_nobody_but_the_controller_writes_credentials(log: MetadataLogBuilder) -> None:
    assert log.write(credential_set()).results[0].code is ResultCode.INVALID
    log.write_as_controller(credential_set())
    removal = ScramCredentialRemoved(user="alice", mechanism=1)
    assert log.write(removal).results[0].code is ResultCode.INVALID
    assert set(log.image.scram) == {ALICE}


def test_b4_voters_that_cannot_read_credentials_are_not_given_any() -> None:
    log = MetadataLogBuilder(begun=False)
    log.start_broker(1)
    log.elect_controller(1)
    log.write_as_controller(credential_set())
    assert not log.image.scram
    log.write_as_controller(FeatureLevel(name="metadata_version", level=3))
    log.write_as_controller(credential_set())
    assert set(log.image.scram) == {ALICE}
