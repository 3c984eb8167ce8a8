"""Changes of configuration: what is decided, and written (F3)."""

from typing import Any

import msgspec
import pytest

from quorate.broker.changes.table import ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS
from quorate.broker.config.spec import BROKER_SPEC
from quorate.broker.controller.managers import config_manager
from quorate.broker.controller.managers.decisions import ControllerTenure
from quorate.common.configuration import ConfigSpec, Update
from quorate.common.types import BrokerId
from quorate.metadata_log.records import ConfigSet
from quorate_proto.v1 import admin_pb2, errors_pb2
from tests.support.metadata import MetadataLogBuilder
from tests.unit.controller.cluster import NO_CONTEXT, Cluster

FILE = {"broker.id": "1", "quorum.bootstrap.servers": "localhost:1", "log.dir": "log"}
CONFIG = BROKER_SPEC.parse(FILE)
RATE = "leader.replication.throttled.rate"
REPLICAS = "leader.replication.throttled.replicas"


class Configs:
    """A topic "t" and broker 1, the controller."""

    def __init__(self) -> None:
        self.log = MetadataLogBuilder()
        self.log.start_broker(1)
        self.log.elect_controller(1)
        self.log.create_topic("t", (1,))

    def alter(self, *changes: admin_pb2.ConfigChange) -> list[int]:
        tenure = ControllerTenure(BrokerId(1), self.log.image.controller_epoch)
        decisions = config_manager.alter(self.log.image, changes, tenure=tenure, config=CONFIG)
        for decision in decisions:
            if decision.operation is not None:
                assert self.log.transact(decision.operation).ok
        return [decision.result.error_code for decision in decisions]

    def replace(self, *replacements: admin_pb2.ConfigReplacement) -> list[int]:
        tenure = ControllerTenure(BrokerId(1), self.log.image.controller_epoch)
        decisions = config_manager.replace(
            self.log.image, replacements, tenure=tenure, config=CONFIG
        )
        for decision in decisions:
            if decision.operation is not None:
                assert self.log.transact(decision.operation).ok
        return [decision.result.error_code for decision in decisions]

    def why(self, change: admin_pb2.ConfigChange) -> str:
        """What a change is refused for."""
        tenure = ControllerTenure(BrokerId(1), self.log.image.controller_epoch)
        (decision,) = config_manager.alter(self.log.image, [change], tenure=tenure, config=CONFIG)
        assert decision.operation is None
        return decision.result.error_message

    def of(self, entity_type: str, name: str) -> dict[str, str]:
        return dict(self.log.image.config(entity_type, name))


def change(entity_type: str, name: str, *removed: str, **values: str) -> admin_pb2.ConfigChange:
    return admin_pb2.ConfigChange(
        entity_type=entity_type,
        entity_name=name,
        values={key.replace("_", "."): value for key, value in values.items()},
        removed=removed,
    )


def lists(key: str, appended: str | None = None, subtracted: str | None = None) -> Any:  # noqa: ANN401
    """A change of a list of topic "t"."""
    return admin_pb2.ConfigChange(
        entity_type="topic",
        entity_name="t",
        appended={} if appended is None else {key: appended},
        subtracted={} if subtracted is None else {key: subtracted},
    )


def test_c11_keys_are_set_and_removed_and_the_others_stay() -> None:
    cluster = Configs()
    assert (
        cluster.alter(
            change("topic", "t", min_insync_replicas="2", max_message_bytes="9"),
            change("broker", "7", leader_replication_throttled_rate="5"),
            change("broker", "", leader_replication_throttled_rate="6"),
        )
        == [errors_pb2.NONE] * 3
    )
    cluster.alter(change("topic", "t", "max.message.bytes"), change("broker", "", RATE))
    assert cluster.of("topic", "t") == {"min.insync.replicas": "2"}
    assert cluster.of("broker", "7") == {RATE: "5"}
    assert cluster.of("broker", "") == {}


def test_a_topic_may_lose_its_last_cleanup_policy_and_get_another() -> None:
    cluster = Configs()
    policy = "cleanup.policy"
    assert cluster.alter(lists(policy, subtracted="delete")) == [errors_pb2.NONE]
    assert cluster.of("topic", "t") == {policy: ""}
    assert cluster.alter(lists(policy, appended="compact")) == [errors_pb2.NONE]
    assert cluster.of("topic", "t") == {policy: "compact"}


def test_a_group_need_not_exist_to_be_configured() -> None:
    cluster = Configs()
    assert cluster.alter(change("group", "g", consumer_session_timeout_ms="50000")) == [
        errors_pb2.NONE
    ]
    assert cluster.of("group", "g") == {"consumer.session.timeout.ms": "50000"}
    assert cluster.alter(
        change("group", "g", consumer_session_timeout_ms="5"),
        change("group", "", consumer_session_timeout_ms="50000"),
        change("group", "h", retention_ms="5"),
    ) == [errors_pb2.INVALID_CONFIG, errors_pb2.INVALID_REQUEST, errors_pb2.INVALID_CONFIG]
    cluster.alter(change("group", "g", "consumer.session.timeout.ms"))
    assert cluster.of("group", "g") == {}


def test_c11_what_changes_nothing_is_not_written() -> None:
    cluster = Configs()
    cluster.alter(change("topic", "t", min_insync_replicas="2"))
    before = cluster.log.image.offset
    unchanged = change("topic", "t", "max.message.bytes", min_insync_replicas="2")
    assert cluster.alter(unchanged) == [errors_pb2.NONE]
    assert cluster.log.image.offset == before


@pytest.mark.parametrize(
    ("refused", "code"),
    [
        (change("topic", "none", min_insync_replicas="2"), errors_pb2.UNKNOWN_TOPIC_OR_PARTITION),
        (change("topic", "t", min_insync_replicas="0"), errors_pb2.INVALID_CONFIG),
        (change("topic", "t", no_such_key="1"), errors_pb2.INVALID_CONFIG),
        (change("broker", "1", log_dir="x"), errors_pb2.INVALID_CONFIG),
        (change("broker", "x"), errors_pb2.INVALID_REQUEST),
        (change("broker", "01"), errors_pb2.INVALID_REQUEST),
        (change("broker", "-1"), errors_pb2.INVALID_REQUEST),
        (lists("min.insync.replicas", appended="2"), errors_pb2.INVALID_CONFIG),
        (lists("min.insync.replicas", subtracted="2"), errors_pb2.INVALID_CONFIG),
        (lists(REPLICAS, appended="nowhere"), errors_pb2.INVALID_CONFIG),
        (lists("no.such.key", appended="x"), errors_pb2.INVALID_CONFIG),
        (lists(REPLICAS, appended="0:1", subtracted="0:2"), errors_pb2.INVALID_REQUEST),
        (change("user", "ann"), errors_pb2.INVALID_REQUEST),
    ],
)
def test_c11_one_refused_entity_does_not_stop_the_others(
    refused: admin_pb2.ConfigChange, code: int
) -> None:
    cluster = Configs()
    good = change("broker", "", min_insync_replicas="2")
    assert cluster.alter(refused, good) == [code, errors_pb2.NONE]
    assert cluster.of("broker", "") == {"min.insync.replicas": "2"}
    assert cluster.of(refused.entity_type, refused.entity_name) == {}


def test_f3_items_are_appended_once_and_taken_out() -> None:
    cluster = Configs()
    seen = []
    for some in (
        lists(REPLICAS, appended="0:1, 0:2"),
        lists(REPLICAS, appended="0:2,1:1"),
        lists(REPLICAS, subtracted="0:1,7:7"),
        lists(REPLICAS, subtracted="0:2,1:1"),
    ):
        assert cluster.alter(some) == [errors_pb2.NONE]
        seen.append(cluster.of("topic", "t")[REPLICAS])
    assert seen == ["0:1,0:2", "0:1,0:2,1:1", "0:2,1:1", ""]


def test_f3_an_entity_named_twice_is_not_changed() -> None:
    cluster = Configs()
    one, two = (change("topic", "t", min_insync_replicas=value) for value in "23")
    other = change("broker", "1", min_insync_replicas="2")
    assert cluster.alter(one, other, two) == [
        errors_pb2.INVALID_REQUEST,
        errors_pb2.NONE,
        errors_pb2.INVALID_REQUEST,
    ]
    assert cluster.of("topic", "t") == {}


def test_f3_a_replacement_unsets_what_it_does_not_name() -> None:
    cluster = Configs()
    cluster.alter(change("topic", "t", min_insync_replicas="2", max_message_bytes="9"))
    values = {"max.message.bytes": "10", "unclean.leader.election.enable": "TRUE"}
    new = admin_pb2.ConfigReplacement(entity_type="topic", entity_name="t", values=values)
    wrong = admin_pb2.ConfigReplacement(
        entity_type="broker", entity_name="1", values={RATE: "5", "log.dir": "x"}
    )
    assert cluster.replace(new, wrong) == [errors_pb2.NONE, errors_pb2.INVALID_CONFIG]
    assert cluster.of("topic", "t") == {
        "max.message.bytes": "10",
        "unclean.leader.election.enable": "true",
    }
    assert cluster.of("broker", "1") == {}


def test_f3_removing_what_is_not_set_changes_nothing_and_the_others_are_removed() -> None:
    cluster = Configs()
    cluster.alter(change("broker", "1", **{RATE: "5"}))
    unknown = "replica.alter.log.dirs.io.max.bytes.per.second"
    assert cluster.alter(change("broker", "1", RATE, unknown)) == [errors_pb2.NONE]
    assert cluster.of("broker", "1") == {}
    before = cluster.log.image.offset
    assert cluster.alter(change("topic", "t", "no.such.key", RATE)) == [errors_pb2.NONE]
    assert cluster.log.image.offset == before


def test_f3_a_key_that_is_known_no_longer_can_be_removed() -> None:
    cluster = Configs()
    old = ConfigSet(entity_type="topic", entity_name="t", key="of.old", value="x")
    assert cluster.log.write_as_controller(old).ok
    assert cluster.alter(change("topic", "t", "of.old")) == [errors_pb2.NONE]
    assert cluster.of("topic", "t") == {}


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"interval_ms": "99"}, "interval.ms=99: must be at least 100"),
        ({"match": "client_id=("}, "match: ( is no regular expression"),
        ({"metric": "a"}, "did you mean metrics?"),
    ],
)
def test_kip_714_subscriptions_to_client_metrics_are_checked(
    values: dict[str, str], why: str
) -> None:
    cluster = Configs()
    assert why in cluster.why(change("client-metrics", "all", **values))
    assert cluster.alter(change("client-metrics", "", metrics="*")) == [errors_pb2.INVALID_REQUEST]
    assert cluster.alter(change("client-metrics", "all", metrics="*")) == [errors_pb2.NONE]
    assert cluster.of("client-metrics", "all") == {"metrics": "*"}


def test_f3_refusals_name_the_key_the_value_and_the_range(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Configs()
    assert cluster.why(change("broker", "1", log_dir="x")).startswith(
        "log.dir cannot be changed while brokers run"
    )
    assert cluster.why(change("topic", "t", min_insync_replicas="0")) == (
        "min.insync.replicas=0: must be at least 1"
    )
    assert "did you mean min.insync.replicas?" in cluster.why(
        change("topic", "t", min_insync_replica="2")
    )
    rate = msgspec.structs.replace(BROKER_SPEC.key(RATE), update=Update.PER_BROKER)
    monkeypatch.setattr(
        "quorate.broker.config.dynamic_config.DYNAMIC_BROKER_SPEC", ConfigSpec("d", [rate])
    )
    assert cluster.why(change("broker", "", leader_replication_throttled_rate="1")) == (
        f"{RATE} is set for one broker at a time, not for all of them"
    )
    one = change("broker", "1", leader_replication_throttled_rate="1")
    assert cluster.alter(one) == [errors_pb2.NONE]


async def test_c11_f3_the_controller_alone_changes_configurations(cluster: Cluster) -> None:
    await cluster.create_topic("t", (1, 2))
    request = admin_pb2.IncrementalAlterConfigsRequest(
        changes=[change("topic", "t", min_insync_replicas="2"), change("topic", "none")]
    )
    declined = await cluster.brokers[2].admin.perform(
        INCREMENTAL_ALTER_CONFIGS, request, NO_CONTEXT
    )
    assert declined.error_code == errors_pb2.NOT_CONTROLLER
    answer = await cluster.brokers[1].admin.perform(INCREMENTAL_ALTER_CONFIGS, request, NO_CONTEXT)
    assert [one.error_code for one in answer.results] == [
        errors_pb2.NONE,
        errors_pb2.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert cluster.image.config("topic", "t")["min.insync.replicas"] == "2"
    cluster.quorum.available = False
    (late,) = (
        await cluster.active.perform(
            INCREMENTAL_ALTER_CONFIGS,
            admin_pb2.IncrementalAlterConfigsRequest(
                changes=[change("topic", "t", "min.insync.replicas")]
            ),
        )
    ).results
    assert late.error_code == errors_pb2.REQUEST_TIMED_OUT
    cluster.quorum.available = True


async def test_f3_what_is_only_validated_is_not_written(cluster: Cluster) -> None:
    await cluster.create_topic("t", (1, 2))
    before = cluster.image.offset
    alter = admin_pb2.IncrementalAlterConfigsRequest(
        changes=[change("topic", "t", min_insync_replicas="2"), change("topic", "none")],
        validate_only=True,
    )
    expected = [errors_pb2.NONE, errors_pb2.UNKNOWN_TOPIC_OR_PARTITION]
    answer = await cluster.active.perform(INCREMENTAL_ALTER_CONFIGS, alter)
    assert [one.error_code for one in answer.results] == expected
    replacement = admin_pb2.ConfigReplacement(
        entity_type="topic", entity_name="t", values={"min.insync.replicas": "2"}
    )
    replace = admin_pb2.AlterConfigsRequest(replacements=[replacement], validate_only=True)
    replaced = await cluster.active.perform(ALTER_CONFIGS, replace)
    assert [one.error_code for one in replaced.results] == [errors_pb2.NONE]
    assert not cluster.image.config("topic", "t")
    assert cluster.image.offset == before
    replace.validate_only = False
    await cluster.active.perform(ALTER_CONFIGS, replace)
    assert dict(cluster.image.config("topic", "t")) == {"min.insync.replicas": "2"}


@pytest.mark.parametrize("name", ["9" * 5_000, "x", "-1", "01", "\u0661"])
def test_what_is_no_broker_id_is_refused(name: str) -> None:
    change = admin_pb2.ConfigChange(entity_type="broker", entity_name=name, values={RATE: "1"})
    assert Configs().alter(change) == [errors_pb2.INVALID_REQUEST]


def test_a_group_keeps_within_the_limits_of_the_brokers() -> None:
    cluster = Configs()
    limits = "from 45000 (group.consumer.min.session.timeout.ms) to 60000"
    assert limits in cluster.why(change("group", "g", consumer_session_timeout_ms="44999"))
    assert "to 15000" in cluster.why(change("group", "g", consumer_heartbeat_interval_ms="15001"))
    assert "to 15000" in cluster.why(change("group", "g", consumer_assignment_interval_ms="15001"))
    assert cluster.alter(change("group", "g", consumer_assignment_interval_ms="0")) == [0]
    wide = {"group.consumer.max.heartbeat.interval.ms": 60_000}
    config = BROKER_SPEC.parse({**FILE, **wide})
    late = change("group", "g", consumer_heartbeat_interval_ms="45000")
    tenure = ControllerTenure(BrokerId(1), cluster.log.image.controller_epoch)
    (decision,) = config_manager.alter(cluster.log.image, [late], tenure=tenure, config=config)
    assert "must be less than consumer.session.timeout.ms" in decision.result.error_message
