"""Changes of client quotas: what is decided, and what nobody gets (Q7)."""

import math

import msgspec
import pytest

from quorate.broker.controller.managers import client_quota_manager
from quorate.broker.controller.managers.decisions import ControllerTenure
from quorate.broker.kafka.wire.primitives import at_once
from quorate.broker.quota.quota_description import describe
from quorate.common.types import BrokerId
from quorate.metadata_log.client_quotas import ClientQuotaEntity
from quorate.metadata_log.records import FeatureLevel
from quorate_proto.v1 import admin_pb2, errors_pb2
from tests.support.metadata import MetadataLogBuilder

Part = admin_pb2.QuotaEntityPart
MUTATIONS = "controller_mutation_rate"

ADDRESS = Part(entity_type="ip", name="10.0.0.9")
ANNA = Part(entity_type="user", name="anna")
EVERY_USER = Part(entity_type="user")
APP = Part(entity_type="client-id", name="app")
EVERY_APP = Part(entity_type="client-id")


def alteration(*entity: Part, **values: float | None) -> admin_pb2.QuotaAlteration:
    return admin_pb2.QuotaAlteration(
        entity=entity,
        changes=[admin_pb2.QuotaChange(key=key, value=value) for key, value in values.items()],
    )


class Quotas:
    """Those of a cluster whose controller is broker 1."""

    def __init__(self, *, begun: bool = True) -> None:
        self.log = MetadataLogBuilder(begun=begun)
        self.log.start_broker(1)
        self.log.elect_controller(1)

    def alter(self, *alterations: admin_pb2.QuotaAlteration) -> list[admin_pb2.QuotaResult]:
        image = self.log.image
        tenure = ControllerTenure(BrokerId(1), image.controller_epoch)
        decisions = client_quota_manager.alter(image, alterations, tenure=tenure)
        for decision in decisions:
            if decision.operation is not None:
                assert self.log.transact(decision.operation).ok
        return [decision.result for decision in decisions]

    def codes(self, *alterations: admin_pb2.QuotaAlteration) -> list[int]:
        return [result.error_code for result in self.alter(*alterations)]

    def of(self, user: str | None, client_id: str | None) -> dict[str, float]:
        return dict(self.log.image.client_quotas.get(ClientQuotaEntity(user, client_id), {}))

    def described(
        self, *filters: admin_pb2.QuotaFilter, strict: bool = False
    ) -> list[tuple[str | None, str | None]]:
        request = admin_pb2.DescribeClientQuotasRequest(filters=filters, strict=strict)
        answer = at_once(describe(self.log.image.client_quotas, request))
        assert answer.error_code == errors_pb2.NONE, answer.error_message
        return [_names(entry) for entry in answer.entries]


def _names(entry: admin_pb2.QuotaEntry) -> tuple[str | None, str | None]:
    names = {part.entity_type: part.name if part.HasField("name") else "" for part in entry.entity}
    return names.get("user"), names.get("client-id")


@pytest.fixture
def quotas() -> Quotas:
    return Quotas()


def test_q7_quotas_are_set_and_removed_and_the_others_stay(quotas: Quotas) -> None:
    assert quotas.codes(
        alteration(ANNA, producer_byte_rate=10, controller_mutation_rate=2.5),
        alteration(APP, EVERY_USER, producer_byte_rate=20),
        alteration(EVERY_APP, consumer_byte_rate=30, request_percentage=200),
    ) == [0, 0, 0]
    assert quotas.of("anna", None) == {"producer_byte_rate": 10, MUTATIONS: 2.5}
    assert quotas.of("", "app") == {"producer_byte_rate": 20}
    assert quotas.of(None, "") == {"consumer_byte_rate": 30, "request_percentage": 200}
    assert quotas.codes(alteration(ANNA, producer_byte_rate=None, request_percentage=None)) == [0]
    assert quotas.of("anna", None) == {MUTATIONS: 2.5}


def test_q7_the_documents_spelling_sets_and_removes_the_same_quota(quotas: Quotas) -> None:
    quotas.alter(alteration(ANNA, controller_mutations_rate=10))
    assert quotas.of("anna", None) == {MUTATIONS: 10}
    quotas.alter(alteration(ANNA, controller_mutations_rate=None))
    assert quotas.of("anna", None) == {}


def test_kip612_addresses_have_a_quota_of_their_own_kind(quotas: Quotas) -> None:
    every_address = Part(entity_type="ip")
    compressed = Part(entity_type="ip", name="2001:DB8:0::1")
    assert quotas.codes(
        alteration(ADDRESS, connection_creation_rate=5),
        alteration(every_address, connection_creation_rate=10),
        alteration(compressed, connection_creation_rate=1),
    ) == [0, 0, 0]
    found = quotas.log.image.client_quotas
    assert {entity.ip: dict(values) for entity, values in found.items()} == {
        "10.0.0.9": {"connection_creation_rate": 5},
        "": {"connection_creation_rate": 10},
        "2001:db8::1": {"connection_creation_rate": 1},
    }
    request = admin_pb2.DescribeClientQuotasRequest(filters=[whatever("ip")], strict=True)
    described = [
        [(part.entity_type, part.HasField("name"), part.name) for part in entry.entity]
        for entry in at_once(describe(found, request)).entries
    ]
    assert sorted(described) == [
        [("ip", False, "")],
        [("ip", True, "10.0.0.9")],
        [("ip", True, "2001:db8::1")],
    ]
    assert quotas.codes(alteration(ADDRESS, connection_creation_rate=None)) == [0]
    assert ClientQuotaEntity(ip="10.0.0.9") not in quotas.log.image.client_quotas


def test_what_changes_nothing_is_not_written(quotas: Quotas) -> None:
    quotas.alter(alteration(ANNA, producer_byte_rate=10))
    offset = quotas.log.image.offset
    assert quotas.codes(alteration(ANNA, producer_byte_rate=10, request_percentage=None)) == [0]
    assert quotas.log.image.offset == offset


@pytest.mark.parametrize(
    ("bad", "named"),
    [
        (alteration(ANNA, producer_byte_rate=-1), "producer_byte_rate=-1"),
        (alteration(ANNA, producer_byte_rate=0), "producer_byte_rate=0"),
        (alteration(ANNA, producer_byte_rate=math.nan), "producer_byte_rate=nan"),
        (alteration(ANNA, producer_byte_rate=math.inf), "producer_byte_rate=inf"),
        (alteration(ANNA, producer_byte_rat=1), "did you mean producer_byte_rate?"),
        (alteration(ANNA, nonsense=None), "unknown quota 'nonsense'"),
        (
            alteration(ANNA, controller_mutation_rate=1, controller_mutations_rate=2),
            f"quota {MUTATIONS} of user 'anna' is named more than once",
        ),
        (alteration(Part(entity_type="group", name="g"), producer_byte_rate=1), "'group'"),
        (alteration(ADDRESS, producer_byte_rate=1), "unknown quota 'producer_byte_rate' of ip"),
        (alteration(ADDRESS, ANNA, connection_creation_rate=1), "beside it"),
        (
            alteration(Part(entity_type="ip", name="example.com"), connection_creation_rate=1),
            "'example.com' is no ip",
        ),
        (alteration(ANNA, connection_creation_rate=1), "unknown quota 'connection_creation_rate'"),
        (alteration(ANNA, EVERY_USER, producer_byte_rate=1), "'user' is named more than once"),
        (alteration(Part(entity_type="user", name=""), producer_byte_rate=1), "an empty user"),
        (alteration(producer_byte_rate=1), "none is named"),
    ],
)
def test_q7_what_can_be_no_quota_is_refused_by_name_and_never_stops_its_siblings(
    quotas: Quotas, bad: admin_pb2.QuotaAlteration, named: str
) -> None:
    refused, good = quotas.alter(bad, alteration(APP, producer_byte_rate=1))
    assert refused.error_code == errors_pb2.INVALID_REQUEST
    assert named in refused.error_message
    assert refused.entity == bad.entity
    assert good.error_code == errors_pb2.NONE
    assert list(quotas.log.image.client_quotas) == [ClientQuotaEntity(None, "app")]


def test_q7_an_entity_named_twice_gets_neither(quotas: Quotas) -> None:
    results = quotas.alter(
        alteration(ANNA, APP, producer_byte_rate=1), alteration(APP, ANNA, consumer_byte_rate=2)
    )
    assert [one.error_code for one in results] == [errors_pb2.INVALID_REQUEST] * 2
    assert "user 'anna', client-id 'app' is named more than once" in results[0].error_message
    assert not quotas.log.image.client_quotas


def test_q7_a_level_that_does_not_know_the_key_refuses_it(quotas: Quotas) -> None:
    registration = quotas.log.image.brokers[BrokerId(1)].registration
    quotas.log.write(msgspec.structs.replace(registration, inter_broker_protocol_max=1))
    refused, known = quotas.alter(
        alteration(ANNA, controller_mutations_rate=1), alteration(APP, producer_byte_rate=1)
    )
    assert refused.error_code == errors_pb2.INVALID_REQUEST
    assert "controller_mutation_rate needs inter_broker_protocol 2, and 1" in refused.error_message
    assert known.error_code == errors_pb2.NONE


def test_b4_records_of_quotas_wait_for_their_metadata_version() -> None:
    quotas = Quotas(begun=False)
    (result,) = quotas.alter(alteration(ANNA, producer_byte_rate=1))
    assert result.error_code == errors_pb2.UNSUPPORTED_VERSION
    assert "--feature metadata_version --level 3" in result.error_message
    quotas.log.write_as_controller(FeatureLevel(name="metadata_version", level=3))
    assert quotas.codes(alteration(ANNA, producer_byte_rate=1)) == [errors_pb2.NONE]


# --- which are set -------------------------------------------------------------------------------


def by_name(entity_type: str, name: str) -> admin_pb2.QuotaFilter:
    return admin_pb2.QuotaFilter(entity_type=entity_type, match_type=0, match=name)


def default(entity_type: str) -> admin_pb2.QuotaFilter:
    return admin_pb2.QuotaFilter(entity_type=entity_type, match_type=1)


def whatever(entity_type: str) -> admin_pb2.QuotaFilter:
    return admin_pb2.QuotaFilter(entity_type=entity_type, match_type=2)


@pytest.mark.parametrize(
    ("filters", "strict", "found"),
    [
        ([], False, [(None, ""), (None, "app"), ("", None), ("anna", None), ("anna", "app")]),
        ([], True, []),
        ([by_name("user", "anna")], False, [("anna", None), ("anna", "app")]),
        ([by_name("user", "anna")], True, [("anna", None)]),
        ([by_name("user", "")], False, []),
        ([default("user")], False, [("", None)]),
        ([whatever("user")], True, [("", None), ("anna", None)]),
        ([whatever("client-id")], False, [(None, ""), (None, "app"), ("anna", "app")]),
        ([whatever("user"), by_name("client-id", "app")], True, [("anna", "app")]),
        ([by_name("user", "berta")], False, []),
    ],
)
def test_q7_entities_are_found_by_name_default_or_either(
    quotas: Quotas,
    filters: list[admin_pb2.QuotaFilter],
    strict: bool,
    found: list[tuple[str | None, str | None]],
) -> None:
    for entity in ([ANNA], [ANNA, APP], [EVERY_USER], [APP], [EVERY_APP]):
        assert quotas.codes(alteration(*entity, producer_byte_rate=1)) == [0]
    assert quotas.described(*filters, strict=strict) == found


@pytest.mark.parametrize(
    ("filters", "named"),
    [
        ([whatever("group")], "'group'"),
        ([whatever("user"), default("user")], "'user' is named more than once"),
        ([admin_pb2.QuotaFilter(entity_type="user", match_type=3)], "match type 3"),
    ],
)
def test_q7_filters_that_mean_nothing_are_refused(
    quotas: Quotas, filters: list[admin_pb2.QuotaFilter], named: str
) -> None:
    request = admin_pb2.DescribeClientQuotasRequest(filters=filters)
    answer = at_once(describe(quotas.log.image.client_quotas, request))
    assert answer.error_code == errors_pb2.INVALID_REQUEST
    assert named in answer.error_message
