"""Client quotas in the image: whose, which, and nothing that cannot be one."""

import math

import pytest

from quorate.metadata_log.client_quotas import ClientQuotaEntity
from quorate.metadata_log.records import ClientQuotaSet, FeatureLevel, Record, ResultCode
from tests.support.metadata import MetadataLogBuilder

KEY = "controller_mutation_rate"


@pytest.fixture
def log() -> MetadataLogBuilder:
    log = MetadataLogBuilder()
    log.start_broker(1)
    log.elect_controller(1)
    return log


def quota(
    value: float | None = 10,
    *,
    user: str | None = "anna",
    client_id: str | None = None,
    key: str = KEY,
) -> ClientQuotaSet:
    return ClientQuotaSet(user=user, client_id=client_id, key=key, value=value)


def code(log: MetadataLogBuilder, record: Record) -> ResultCode:
    return log.write_as_controller(record).results[0].code


def test_q7_a_quota_is_set_replaced_and_removed(log: MetadataLogBuilder) -> None:
    anna = ClientQuotaEntity(user="anna")
    assert code(log, quota(10)) is ResultCode.OK
    assert code(log, quota(20)) is ResultCode.OK
    assert code(log, quota(1.5, key="producer_byte_rate")) is ResultCode.OK
    assert dict(log.image.client_quotas[anna]) == {KEY: 20, "producer_byte_rate": 1.5}
    assert code(log, quota(None)) is ResultCode.OK
    assert dict(log.image.client_quotas[anna]) == {"producer_byte_rate": 1.5}
    assert code(log, quota(None, key="producer_byte_rate")) is ResultCode.OK
    assert code(log, quota(None)) is ResultCode.OK, "it is gone already"
    assert not log.image.client_quotas


def test_q7_a_name_a_default_and_no_name_are_different(log: MetadataLogBuilder) -> None:
    entities = [
        ClientQuotaEntity(user, client_id)
        for user in (None, "", "anna")
        for client_id in (None, "", "app")
        if (user, client_id) != (None, None)
    ]
    for value, entity in enumerate(entities, 1):
        code(log, quota(value, user=entity.user, client_id=entity.client_id))
    assert [log.image.client_quotas[entity][KEY] for entity in entities] == [*range(1, 9)]


@pytest.mark.parametrize(
    "record",
    [
        quota(user=None),
        quota(0),
        quota(-1),
        quota(math.nan),
        quota(math.inf),
        quota(key=""),
    ],
)
def test_q7_what_can_be_no_quota_is_refused(
    log: MetadataLogBuilder, record: ClientQuotaSet
) -> None:
    assert code(log, record) is ResultCode.INVALID
    assert not log.image.client_quotas


def test_f3_nobody_but_the_controller_writes_quotas(log: MetadataLogBuilder) -> None:
    assert log.write(quota()).results[0].code is ResultCode.INVALID
    assert not log.image.client_quotas


def test_b4_voters_that_cannot_read_quotas_are_not_given_any() -> None:
    log = MetadataLogBuilder(begun=False)
    log.start_broker(1)
    log.elect_controller(1)
    log.write_as_controller(quota())
    assert not log.image.client_quotas
    log.write_as_controller(FeatureLevel(name="metadata_version", level=3))
    log.write_as_controller(quota())
    assert set(log.image.client_quotas) == {ClientQuotaEntity(user="anna")}
