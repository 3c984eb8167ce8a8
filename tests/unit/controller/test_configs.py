"""Changes of configuration: what is decided, and written (F3)."""

import pytest

from broker.control.changes import INCREMENTAL_ALTER_CONFIGS
from broker.controller.managers import configs
from broker.controller.managers.office import Office
from metadata_log.types import BrokerId
from quorate_proto.v1 import admin_pb2, errors_pb2
from tests.support.metadata import MetadataLogBuilder
from tests.unit.controller.cluster import NO_CONTEXT, Cluster

RATE = "leader.replication.throttled.rate"


class Configs:
    """A topic "t" and broker 1, the controller."""

    def __init__(self) -> None:
        self.log = MetadataLogBuilder()
        self.log.start_broker(1)
        self.log.elect_controller(1)
        self.log.create_topic("t", (1,))

    def alter(self, *changes: admin_pb2.ConfigChange) -> list[int]:
        office = Office(BrokerId(1), self.log.image.controller_epoch)
        decisions = configs.alter(self.log.image, changes, office=office)
        for decision in decisions:
            if decision.operation is not None:
                assert self.log.transact(decision.operation).ok
        return [decision.result.error_code for decision in decisions]

    def of(self, entity_type: str, name: str) -> dict[str, str]:
        return dict(self.log.image.config(entity_type, name))


def change(entity_type: str, name: str, *removed: str, **values: str) -> admin_pb2.ConfigChange:
    return admin_pb2.ConfigChange(
        entity_type=entity_type,
        entity_name=name,
        values={key.replace("_", "."): value for key, value in values.items()},
        removed=removed,
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
        (change("topic", "t", "no.such.key"), errors_pb2.INVALID_CONFIG),
        (change("topic", "t", no_such_key="1"), errors_pb2.INVALID_CONFIG),
        (change("broker", "1", log_dir="x"), errors_pb2.INVALID_CONFIG),
        (change("broker", "x"), errors_pb2.INVALID_REQUEST),
        (change("user", "ann"), errors_pb2.INVALID_REQUEST),
    ],
)
def test_c11_one_refused_entity_does_not_stop_the_others(
    refused: admin_pb2.ConfigChange, code: int
) -> None:
    cluster = Configs()
    good = change("topic", "t", min_insync_replicas="2")
    assert cluster.alter(refused, good) == [code, errors_pb2.NONE]
    assert cluster.of("topic", "t") == {"min.insync.replicas": "2"}


async def test_c11_f3_the_controller_alone_changes_configurations(cluster: Cluster) -> None:
    await cluster.create_topic("t", (1, 2))
    request = admin_pb2.IncrementalAlterConfigsRequest(
        changes=[change("topic", "t", min_insync_replicas="2"), change("topic", "none")]
    )
    declined = await cluster.brokers[2].admin.carry_out(
        INCREMENTAL_ALTER_CONFIGS, request, NO_CONTEXT
    )
    assert declined.error_code == errors_pb2.NOT_CONTROLLER
    answer = await cluster.brokers[1].admin.carry_out(
        INCREMENTAL_ALTER_CONFIGS, request, NO_CONTEXT
    )
    assert [one.error_code for one in answer.results] == [
        errors_pb2.NONE,
        errors_pb2.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert cluster.image.config("topic", "t")["min.insync.replicas"] == "2"
    cluster.quorum.available = False
    (late,) = (
        await cluster.active.carry_out(
            INCREMENTAL_ALTER_CONFIGS,
            admin_pb2.IncrementalAlterConfigsRequest(
                changes=[change("topic", "t", "min.insync.replicas")]
            ),
        )
    ).results
    assert late.error_code == errors_pb2.REQUEST_TIMED_OUT
    cluster.quorum.available = True
