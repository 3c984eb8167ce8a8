"""Quotas and metrics through the admin client."""

from collections.abc import Iterator

import pytest

from quorate.client.admin import AdminClient
from quorate.client.errors import RequestFailed
from quorate.client.results import Metric, QuotaAlteration, QuotaEntity, QuotaEntry, QuotaFilter
from quorate.metadata_log import client_quotas
from quorate_proto.v1 import admin_pb2
from tests.support.admin_cluster import FakeCluster, serving


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with serving(FakeCluster(2, controller_id=2)) as running:
        yield running


def test_q7_quotas_are_changed_at_the_controller_entity_by_entity(cluster: FakeCluster) -> None:
    with AdminClient(grpc_addresses=cluster.addresses) as admin:
        good, bad = admin.alter_client_quotas(
            [
                QuotaAlteration(QuotaEntity("anna", ""), {"a": 1.5, "b": None}),
                QuotaAlteration(QuotaEntity(client_id="app"), {"bad": 1}),
            ],
            validate_only=True,
        )
    assert good.raise_for_error().entity == QuotaEntity("anna", "")
    with pytest.raises(RequestFailed, match="INVALID_REQUEST: bad: no"):
        bad.raise_for_error()
    (request,) = cluster.brokers[1].asked
    assert isinstance(request, admin_pb2.AlterClientQuotasRequest)
    assert request.validate_only
    first, second = request.alterations
    assert [(one.entity_type, one.HasField("name"), one.name) for one in first.entity] == [
        ("user", True, "anna"),
        ("client-id", False, ""),
    ]
    assert [(one.key, one.HasField("value"), one.value) for one in first.changes] == [
        ("a", True, 1.5),
        ("b", False, 0.0),
    ]
    assert [one.entity_type for one in second.entity] == ["client-id"]


def test_q7_quotas_are_found_by_filters(cluster: FakeCluster) -> None:
    for user, client_id in (("anna", None), ("anna", "app"), ("", None)):
        cluster.quotas[client_quotas.ClientQuotaEntity(user, client_id)] = {"b": 2.0, "a": 1.0}
    values = {"a": 1.0, "b": 2.0}
    with AdminClient(grpc_addresses=cluster.addresses) as admin:
        assert admin.describe_client_quotas([QuotaFilter("user", "anna")], strict=True) == [
            QuotaEntry(QuotaEntity("anna"), values)
        ]
        assert admin.describe_client_quotas([QuotaFilter("user", "")]) == [
            QuotaEntry(QuotaEntity(""), values)
        ]
        assert len(admin.describe_client_quotas([QuotaFilter("user")])) == 3
        with pytest.raises(RequestFailed, match="'group'"):
            admin.describe_client_quotas([QuotaFilter("group")])


def test_q9_metrics_are_those_of_all_brokers(cluster: FakeCluster) -> None:
    tags = {"user": "anna", "client-id": ""}
    with AdminClient(grpc_addresses=cluster.addresses) as admin:
        assert admin.metrics() == [
            Metric(1, "ControllerMutation", "tokens", tags, -7.5),
            Metric(2, "ControllerMutation", "tokens", tags, -15.0),
        ]
