"""Configurations through the admin client: who is asked, and what comes back."""

from collections.abc import Iterator

import pytest

from quorate.client.admin import AdminClient
from quorate.client.errors import RequestFailed
from quorate.client.results import (
    ConfigChange,
    ConfigEntity,
    ConfigReplacement,
    ConfigSource,
    ConfigSynonym,
)
from quorate_proto.v1 import admin_pb2
from tests.support.admin_cluster import FakeCluster, serving


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with serving(FakeCluster(3, controller_id=2)) as cluster:
        yield cluster


def test_f3_changes_go_to_the_controller_and_failures_are_values(cluster: FakeCluster) -> None:
    with AdminClient(grpc_addresses=cluster.addresses[:1]) as admin:
        good, bad = admin.incremental_alter_configs(
            [
                ConfigChange("topic", "t", {"a": "1", "b": None}, {"c": "x"}, {"d": "y"}),
                ConfigChange("broker", "", {"bad": "1"}),
            ],
            validate_only=True,
        )
        (replaced,) = admin.alter_configs([ConfigReplacement("topic", "t", {"a": "1"})])
    assert (good.ok, bad.ok, bad.error, replaced.ok) == (True, False, "INVALID_CONFIG", True)
    with pytest.raises(RequestFailed, match="bad: no"):
        bad.raise_for_error()
    altered, replacing = cluster.brokers[1].asked
    assert isinstance(altered, admin_pb2.IncrementalAlterConfigsRequest)
    assert altered.validate_only
    assert altered.changes[0] == admin_pb2.ConfigChange(
        entity_type="topic",
        entity_name="t",
        values={"a": "1"},
        removed=["b"],
        appended={"c": "x"},
        subtracted={"d": "y"},
    )
    assert isinstance(replacing, admin_pb2.AlterConfigsRequest)
    assert dict(replacing.replacements[0].values) == {"a": "1"}


def test_f3_each_broker_is_asked_for_its_own_configuration(cluster: FakeCluster) -> None:
    asked = [
        ConfigEntity("broker", "3"),
        ConfigEntity("topic", "t"),
        ConfigEntity("broker", "9"),
        ConfigEntity("broker", "2"),
        ConfigEntity("broker", ""),
        ConfigEntity("broker", "x"),
    ]
    with AdminClient(grpc_addresses=cluster.addresses) as admin:
        found = admin.describe_configs(asked, include_synonyms=True)
    assert [(one.entity_type, one.entity_name) for one in found] == [
        (one.entity_type, one.entity_name) for one in asked
    ]
    told_by = [entry.value for one in found for entry in one.entries if entry.name == "told.by"]
    assert told_by == ["3", "1", "2", "1"]
    away = found[2]
    assert (away.ok, away.error) == (False, "BROKER_NOT_AVAILABLE")
    with pytest.raises(RequestFailed, match="broker 9 does not answer"):
        away.raise_for_error()
    with pytest.raises(RequestFailed, match="'x' is no broker id"):
        found[5].raise_for_error()
    default, secret, told = found[1].entries
    assert (default.value, default.source) == ("true", ConfigSource.DEFAULT_CONFIG)
    assert (secret.value, secret.source) == (None, ConfigSource.UNKNOWN)
    assert told.source is ConfigSource.DYNAMIC_TOPIC_CONFIG
    assert told.synonyms[1] == ConfigSynonym(
        name="x", value="2", source=ConfigSource.DEFAULT_CONFIG
    )
