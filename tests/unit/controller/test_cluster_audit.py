"""Who changed what: beside the change in the metadata log, and in the audit trail (F5)."""

import asyncio
from typing import Any

import msgspec

from quorate.broker.changes.table import CREATE_TOPICS, INCREMENTAL_ALTER_CONFIGS, A, Change, Q
from quorate.common.types import BrokerId
from quorate.metadata_log.records import ChangeNote, ConfigSet, Operation, TopicCreated
from quorate_proto.v1 import admin_pb2, errors_pb2
from tests.unit.controller.cluster import Cluster, new_topic

ANN = admin_pb2.RequestContext(
    principal_name="User:ann", client_host="10.0.0.9", client_id="tool", forwarded_by=2
)


def written(cluster: Cluster, kind: type) -> list[Operation]:
    return [
        operation
        for _, transaction in cluster.quorum.log
        for operation in transaction.operations
        if any(isinstance(record, kind) for record in operation.records)
    ]


def notes(operation: Operation) -> list[ChangeNote]:
    return [record for record in operation.records if isinstance(record, ChangeNote)]


def retention(topic: str, value: str) -> admin_pb2.IncrementalAlterConfigsRequest:
    change = admin_pb2.ConfigChange(
        entity_type="topic", entity_name=topic, values={"min.insync.replicas": value}
    )
    return admin_pb2.IncrementalAlterConfigsRequest(context=ANN, changes=[change])


async def ask(cluster: Cluster, change: Change[Q, A], request: Q) -> A:
    return await cluster.active.perform(change, request)


async def test_f5_the_note_stands_in_the_very_operation_that_it_is_about(cluster: Cluster) -> None:
    topics = [new_topic("a", (1, 2)), new_topic("b", (2, 1))]
    await ask(cluster, CREATE_TOPICS, admin_pb2.CreateTopicsRequest(context=ANN, topics=topics))
    made = written(cluster, TopicCreated)
    assert [len(notes(one)) for one in made] == [1, 1]
    assert notes(made[0])[0] == ChangeNote(
        principal="User:ann",
        client_host="10.0.0.9",
        client_id="tool",
        api="CreateTopics",
        forwarded_by=BrokerId(2),
    )


async def test_f5_what_the_controller_does_by_itself_is_nobodys(cluster: Cluster) -> None:
    await ask(
        cluster,
        CREATE_TOPICS,
        admin_pb2.CreateTopicsRequest(context=ANN, topics=[new_topic("a", (2, 3), (3, 2))]),
    )
    before = len(cluster.quorum.log)
    await cluster.kill(3)
    await cluster.at_rest()
    since = [one for _, each in cluster.quorum.log[before:] for one in each.operations]
    assert len(since) > 1
    assert not any(notes(one) for one in since)


async def test_f5_an_entry_per_resource_says_who_what_and_where_in_the_log(
    cluster: Cluster,
) -> None:
    await cluster.create_topic("t", (1, 2))
    audited = cluster.brokers[1].audited
    audited.clear()
    request = retention("t", "2")
    request.changes.add(entity_type="topic", entity_name="none", values={"x": "SECRET"})
    await ask(cluster, INCREMENTAL_ALTER_CONFIGS, request)
    (offset,) = (
        offset
        for offset, transaction in cluster.quorum.log
        for operation in transaction.operations
        if any(isinstance(record, ConfigSet) for record in operation.records)
    )
    common: dict[str, Any] = {
        "principal": "User:ann",
        "client_host": "10.0.0.9",
        "client_id": "tool",
        "forwarded_by": 2,
        "api": "IncrementalAlterConfigs",
        "validate_only": False,
        "controller_epoch": 1,
        "metadata_offset": offset,
    }
    assert audited == [
        {**common, "resource": "configuration of topic t: min.insync.replicas", "result": "NONE"},
        {
            **common,
            "resource": "configuration of topic none: x",
            "result": "UNKNOWN_TOPIC_OR_PARTITION",
        },
    ]
    assert "SECRET" not in str(audited), "values are not told: they may be secrets"


async def test_f5_two_requests_at_once_keep_their_names(cluster: Cluster) -> None:
    def create(name: str) -> admin_pb2.CreateTopicsRequest:
        context = admin_pb2.RequestContext(principal_name=f"User:{name}")
        return admin_pb2.CreateTopicsRequest(context=context, topics=[new_topic(name, (1, 2))])

    names = [f"t{number}" for number in range(9)]
    await asyncio.gather(*(ask(cluster, CREATE_TOPICS, create(name)) for name in names))
    by_topic = {
        record.name: notes(operation)[0].principal
        for operation in written(cluster, TopicCreated)
        for record in operation.records
        if isinstance(record, TopicCreated)
    }
    assert by_topic == {name: f"User:{name}" for name in names}
    assert {one["resource"]: one["principal"] for one in cluster.brokers[1].audited} == {
        f"topic {name}": f"User:{name}" for name in names
    }


async def test_f5_what_was_not_carried_out_here_is_not_audited_here(cluster: Cluster) -> None:
    await cluster.create_topic("t", (1, 2))
    controller, audited = cluster.active, cluster.brokers[1].audited
    audited.clear()
    await controller.close()
    answer = await controller.perform(INCREMENTAL_ALTER_CONFIGS, retention("t", "2"))
    assert answer.error_code == errors_pb2.NOT_CONTROLLER
    assert not audited


async def test_b4_no_notes_while_an_older_voter_could_not_read_them(cluster: Cluster) -> None:
    await cluster.create_topic("t", (1, 2))
    for older in (2, 1):
        features = cluster.image.features.set("metadata_version", older)
        image = msgspec.structs.replace(cluster.image, features=features)
        cluster.quorum.image = cluster.brokers[1].follower.image = image
        answer = await ask(cluster, INCREMENTAL_ALTER_CONFIGS, retention("t", str(older)))
        assert [one.error_code for one in answer.results] == [errors_pb2.NONE]
        assert not notes(written(cluster, ConfigSet)[-1])
