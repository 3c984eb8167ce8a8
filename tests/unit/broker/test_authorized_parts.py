"""Requests of which a part is allowed: that part is done, the rest refused, each in its place."""

from pathlib import Path
from typing import Any
from uuid import UUID

from quorate.broker.config.topic_keys import TOPIC_KEYS
from quorate.broker.kafka.api_table import api_table
from quorate.broker.kafka.connection.requests import RequestContext
from quorate.broker.kafka.wire.primitives import Cursor
from quorate.common.acl_types import CLUSTER_NAME, AclOperation, ResourceType
from quorate_proto.v1 import errors_pb2
from tests.support.acls import Binding, acl
from tests.support.kafka_wire import Values, fetching, producing, record_batch, request_body
from tests.unit.broker.test_authorization_matrix import ALICE, HOST, Asked, read_answer_body

Op = AclOperation
DENIED = errors_pb2.TOPIC_AUTHORIZATION_FAILED
UNKNOWN = errors_pb2.UNKNOWN_TOPIC_OR_PARTITION
NOT_ASKED = -(2**31)


def may(operation: Op, name: str, *, prefixed: bool = False) -> Binding:
    return acl("User:alice", operation, ResourceType.TOPIC, name, prefixed=prefixed)


class Broker(Asked):
    """With topics mine-1, theirs-1 and mine-2; alice has rights on what begins with ``mine``."""

    def __init__(self, tmp_path: Path, *operations: Op, more: tuple[Binding, ...] = ()) -> None:
        super().__init__(tmp_path, *(may(one, "mine", prefixed=True) for one in operations), *more)
        for name in ("mine-1", "theirs-1", "mine-2"):
            self.inside.metadata.add_topic(name)

    async def raw(self, key: int, version: int, values: Values) -> bytes:
        api = api_table()[key]
        body = memoryview(bytearray(request_body(key, version, values)))
        context = RequestContext(version, "client", HOST, ALICE)
        decoded = api.decode_body(version, Cursor(body))
        return b"".join(
            api.encode_body(context.version, await api.handle(self.services, context, decoded))
        )

    async def ask(self, key: int, version: int, values: Values) -> Any:  # noqa: ANN401 - any response
        return read_answer_body(key, version, await self.raw(key, version, values))[1]


TOPICS = ("theirs-1", "mine-1", "theirs-1", "mine-2")


async def test_f5_produced_is_what_may_be_written(tmp_path: Path) -> None:
    broker = Broker(tmp_path, Op.WRITE)
    one = producing(record_batch(2))
    one["topic_data"] = [{**one["topic_data"][0], "name": name} for name in TOPICS]
    answer = await broker.ask(0, 9, one)
    assert [
        (topic.name, topic.partition_responses[0].error_code) for topic in answer.responses
    ] == [("theirs-1", DENIED), ("mine-1", 0), ("theirs-1", DENIED), ("mine-2", 0)]
    ((entries, _, _),) = broker.inside.replicas.produced
    assert [entry.tp.topic for entry in entries] == ["mine-1", "mine-2"]


async def test_f5_fetched_is_what_may_be_read(tmp_path: Path) -> None:
    broker = Broker(tmp_path, Op.READ, Op.WRITE)
    for name in ("mine-1", "mine-2"):
        data = producing(record_batch(1, value=name.encode()))
        data["topic_data"][0]["name"] = name
        await broker.ask(0, 9, data)
    wanted = fetching()
    wanted["topics"] = [{**wanted["topics"][0], "topic": name} for name in TOPICS]
    answer = await broker.ask(1, 12, wanted)
    found = [(one.topic, one.partitions[0]) for one in answer.responses]
    assert [(name, one.error_code) for name, one in found] == [
        ("theirs-1", DENIED),
        ("mine-1", 0),
        ("theirs-1", DENIED),
        ("mine-2", 0),
    ]
    for name, partition in found:
        assert (name.encode() in bytes(partition.records or b"")) is name.startswith("mine")


async def test_f5_a_fetch_of_nothing_that_may_be_read_is_answered_at_once(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    wanted = fetching(max_wait_ms=60_000)
    wanted["topics"][0]["topic"] = "theirs-1"
    answer = await broker.ask(1, 12, wanted)
    assert answer.responses[0].partitions[0].error_code == DENIED


def metadata(*names: str | None, topics: bool = False, cluster: bool = False) -> Values:
    return {
        "topics": None if names == (None,) else [{"name": name} for name in names],
        "allow_auto_topic_creation": True,
        "include_cluster_authorized_operations": cluster,
        "include_topic_authorized_operations": topics,
    }


async def test_f5_of_all_topics_those_are_told_that_may_be_seen(tmp_path: Path) -> None:
    some = await Broker(tmp_path, Op.DESCRIBE).ask(3, 9, metadata(None))
    assert {topic.name for topic in some.topics} == {"mine-1", "mine-2"}
    assert {topic.error_code for topic in some.topics} == {0}
    none = await Broker(tmp_path).ask(3, 9, metadata(None))
    assert not none.topics
    assert none.brokers


async def test_f5_a_hidden_topic_looks_the_same_whether_it_is_there_or_not(
    tmp_path: Path,
) -> None:
    broker = Broker(tmp_path, Op.DESCRIBE)
    answer = await broker.ask(3, 9, metadata("theirs-1", "none", "mine-1"))
    told = [(topic.name, topic.error_code, len(topic.partitions)) for topic in answer.topics]
    assert told == [("theirs-1", DENIED, 0), ("none", DENIED, 0), ("mine-1", 0, 1)]
    assert broker.nothing_was_done


async def test_f5_by_id_the_name_is_not_told(tmp_path: Path) -> None:
    broker = Broker(tmp_path, Op.DESCRIBE)
    ids = {
        name: UUID(bytes=topic.topic_id) for name, topic in broker.inside.metadata.topics.items()
    }
    unknown = UUID(int=7)
    asked = [ids["theirs-1"], ids["mine-1"], unknown]
    answer = await broker.ask(
        3,
        12,
        {
            "topics": [{"topic_id": one, "name": None} for one in asked],
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": False,
        },
    )
    assert [(topic.name, topic.topic_id, topic.error_code) for topic in answer.topics] == [
        (None, asked[0], DENIED),
        ("mine-1", asked[1], 0),
        (None, unknown, errors_pb2.UNKNOWN_TOPIC_ID),
    ]


async def test_f5_only_what_may_be_created_is_created_by_asking_for_it(tmp_path: Path) -> None:
    broker = Broker(tmp_path, Op.DESCRIBE, Op.CREATE, more=(may(Op.DESCRIBE, "other"),))
    answer = await broker.ask(3, 9, metadata("mine-new", "other", "hidden"))
    codes = {topic.name: topic.error_code for topic in answer.topics}
    assert codes["other"] == codes["hidden"] == DENIED
    assert codes["mine-new"] in (0, errors_pb2.LEADER_NOT_AVAILABLE)
    (creation,) = broker.inside.forwarder.creations
    assert [topic.name for topic in creation.topics] == ["mine-new"]


async def test_kip430_operations_are_told_to_those_who_ask(tmp_path: Path) -> None:
    described = acl("User:alice", Op.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
    broker = Broker(tmp_path, Op.READ, more=(described,))
    silent = await broker.ask(3, 9, metadata("mine-1"))
    assert silent.topics[0].topic_authorized_operations == NOT_ASKED
    assert silent.cluster_authorized_operations == NOT_ASKED
    told = await broker.ask(3, 9, metadata("mine-1", "theirs-1", topics=True, cluster=True))
    mine, theirs = told.topics
    assert mine.topic_authorized_operations == 1 << Op.READ | 1 << Op.DESCRIBE
    assert theirs.topic_authorized_operations == NOT_ASKED
    assert told.cluster_authorized_operations == 1 << Op.DESCRIBE
    asked = {"include_cluster_authorized_operations": True}
    for asking, bits in ((broker, 1 << Op.DESCRIBE), (Broker(tmp_path), 0)):
        cluster = await asking.raw(60, 1, asked)
        assert cluster.endswith(bits.to_bytes(4, "big") + b"\0")


async def test_f5_what_one_may_see_is_not_kept_for_another(tmp_path: Path) -> None:
    """Answers to metadata requests are cached: for those who may see all of it."""
    api = api_table()[3]
    seeing, blind = Broker(tmp_path, Op.DESCRIBE), Broker(tmp_path)
    blind.inside.metadata.topics.update(seeing.inside.metadata.topics)
    body = request_body(3, 9, metadata("mine-1"))
    counts = []
    for broker in (seeing, blind, seeing):
        broker.inside.metadata.brokers = seeing.inside.metadata.brokers
        context = RequestContext(9, "client", HOST, ALICE)
        decoded = api.decode_body(9, Cursor(memoryview(bytearray(body))))
        answer = b"".join(
            api.encode_body(context.version, await api.handle(broker.services, context, decoded))
        )
        (topic,) = read_answer_body(3, 9, answer)[1].topics
        counts.append(len(topic.partitions))
    assert counts == [1, 0, 1]


async def test_kip525_configurations_of_a_new_topic_are_for_those_who_may_see_them(
    tmp_path: Path,
) -> None:
    new = {
        "topics": [
            {
                "name": "mine-new",
                "num_partitions": 1,
                "replication_factor": 1,
                "assignments": [],
                "configs": [{"name": "retention.ms", "value": "5"}],
            }
        ],
        "timeout": 1_000,
        "validate_only": True,
    }
    (hidden,) = (await Broker(tmp_path, Op.CREATE).ask(19, 7, new)).topics
    assert (hidden.error_code, hidden.num_partitions, hidden.configs) == (0, -1, None)
    assert hidden.topic_config_error_code == DENIED
    seeing = Broker(tmp_path, Op.CREATE, Op.DESCRIBE_CONFIGS)
    (shown,) = (await seeing.ask(19, 7, new)).topics
    assert (shown.num_partitions, len(shown.configs)) == (1, len(TOPIC_KEYS))
    assert {one.name: one.value for one in shown.configs}["retention.ms"] == "5"
    assert shown.topic_config_error_code == 0
