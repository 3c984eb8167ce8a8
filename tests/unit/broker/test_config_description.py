"""What DescribeConfigs says of a topic, a broker, and all brokers."""

import msgspec
import pytest

from quorate.broker.config.group_keys import GROUP_SPEC
from quorate.broker.config.spec import BROKER_SPEC
from quorate.broker.kafka.admin.config_description import describe
from quorate.common.configuration import ConfigSpec
from quorate_proto.v1 import admin_pb2, errors_pb2
from tests.support.acls import ALL_RIGHTS
from tests.unit.broker.test_dynamic_config import ME, Cluster

RATE = "leader.replication.throttled.rate"


def described(
    cluster: Cluster, kind: str, name: str, *keys: str, more: bool = False
) -> admin_pb2.DescribedConfig:
    request = admin_pb2.DescribeConfigsRequest(
        entities=[admin_pb2.ConfigEntity(entity_type=kind, entity_name=name, keys=keys)],
        include_synonyms=more,
        include_documentation=more,
    )
    (found,) = describe(request, cluster.log.image, cluster.file, ME, ALL_RIGHTS).results
    return found


def test_f3_a_topic_has_all_its_keys_each_with_its_source() -> None:
    cluster = Cluster(min_insync_replicas=2)
    cluster.log.create_topic("t", (1,))
    cluster.set("topic", "t", "unclean.leader.election.enable", "true")
    cluster.set("broker", "", "message.max.bytes", "77")
    found = {entry.name: entry for entry in described(cluster, "topic", "t").entries}
    assert list(found) == sorted(found)
    shown = {name: (entry.value, entry.source) for name, entry in found.items()}
    assert shown["unclean.leader.election.enable"] == ("true", 1)
    assert shown["max.message.bytes"] == ("77", 3)
    assert shown["min.insync.replicas"] == ("2", 4)
    assert shown["retention.ms"] == ("604800000", 5)
    for entry in found.values():
        assert not entry.read_only
        assert not entry.documentation
        assert not entry.synonyms


def test_f3_a_broker_has_its_file_and_what_takes_a_restart() -> None:
    cluster = Cluster(fetch_max_bytes=5_000)
    cluster.set("broker", "1", RATE, "9")
    found = {entry.name: entry for entry in described(cluster, "broker", "1").entries}
    assert set(found) == {key.name for key in BROKER_SPEC}
    assert (found["fetch.max.bytes"].value, found["fetch.max.bytes"].source) == ("5000", 4)
    assert (found["log.dir"].value, found["log.dir"].read_only) == ("x", True)
    assert (found[RATE].value, found[RATE].source, found[RATE].read_only) == ("9", 2, False)
    assert found["num.partitions"].source == 5


def test_f3_of_all_brokers_is_told_what_is_set_for_all() -> None:
    cluster = Cluster()
    assert not described(cluster, "broker", "").entries
    cluster.set("broker", "1", RATE, "9")
    cluster.set("broker", "", RATE, "8")
    (entry,) = described(cluster, "broker", "").entries
    assert (entry.name, entry.value, entry.source) == (RATE, "8", 3)


def test_f3_synonyms_and_a_sentence_are_told_to_those_who_ask() -> None:
    cluster = Cluster(message_max_bytes=20)
    cluster.log.create_topic("t", (1,))
    cluster.set("topic", "t", "max.message.bytes", "50")
    (entry,) = described(cluster, "topic", "t", "max.message.bytes", more=True).entries
    assert [(one.name, one.value, one.source) for one in entry.synonyms] == [
        ("max.message.bytes", "50", 1),
        ("message.max.bytes", "20", 4),
        ("message.max.bytes", str(8 << 20), 5),
    ]
    assert entry.documentation == "The largest record batch that is accepted."


def test_f3_types_are_kafkas() -> None:
    cluster = Cluster()
    cluster.log.create_topic("t", (1,))
    types = {one.name: one.type for one in described(cluster, "topic", "t").entries}
    types |= {one.name: one.type for one in described(cluster, "broker", "1").entries}
    names = [
        "unclean.leader.election.enable",
        "compression.type",
        "broker.id",
        RATE,
        "leader.replication.throttled.replicas",
        "cleanup.policy",
        "min.cleanable.dirty.ratio",
    ]
    assert [types[name] for name in names] == [1, 2, 3, 5, 7, 7, 6]


def test_f3_a_secret_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(fetch_max_bytes=4711)
    secret = msgspec.structs.replace(BROKER_SPEC.key("fetch.max.bytes"), sensitive=True)
    monkeypatch.setattr(
        "quorate.broker.kafka.admin.config_description.BROKER_SPEC", ConfigSpec("b", [secret])
    )
    found = described(cluster, "broker", "1", more=True)
    (entry,) = found.entries
    assert (entry.sensitive, entry.HasField("value"), entry.type) == (True, False, 9)
    assert "4711" not in str(found)


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        ("topic", "none", errors_pb2.UNKNOWN_TOPIC_OR_PARTITION),
        ("broker", "2", errors_pb2.INVALID_REQUEST),
        ("broker", "one", errors_pb2.INVALID_REQUEST),
        ("user", "ann", errors_pb2.INVALID_REQUEST),
    ],
)
def test_f3_what_this_broker_cannot_tell_is_refused(kind: str, name: str, code: int) -> None:
    found = described(Cluster(), kind, name)
    assert (found.error_code, len(found.entries)) == (code, 0)
    assert found.error_message


def test_kip_714_a_subscription_has_its_keys_and_their_defaults() -> None:
    cluster = Cluster()
    cluster.set("client-metrics", "all", "metrics", "*")
    entries = described(cluster, "client-metrics", "all", more=True).entries
    assert {entry.name: (entry.value, entry.source, entry.type) for entry in entries} == {
        "interval.ms": ("300000", 5, 3),
        "match": ("", 5, 7),
        "metrics": ("*", 7, 7),
    }
    assert not any(entry.read_only for entry in entries)
    assert described(cluster, "client-metrics", "").error_code == errors_pb2.INVALID_REQUEST


def test_a_group_has_its_keys_whether_it_exists_or_not() -> None:
    cluster = Cluster()
    cluster.set("group", "g", "consumer.session.timeout.ms", "50000")
    found = {one.name: one for one in described(cluster, "group", "g", more=True).entries}
    assert set(found) == {key.name for key in GROUP_SPEC}
    assert {
        name: (one.value, one.source) for name, one in found.items() if name.startswith("consumer.")
    } == {
        "consumer.assignment.interval.ms": ("1000", 5),
        "consumer.heartbeat.interval.ms": ("5000", 5),
        "consumer.session.timeout.ms": ("50000", 8),
    }
    assert not any(one.read_only for one in found.values())
    synonyms = found["consumer.session.timeout.ms"].synonyms
    assert [(one.name, one.value) for one in synonyms] == [
        ("consumer.session.timeout.ms", "50000"),
        ("group.consumer.session.timeout.ms", "45000"),
    ]
