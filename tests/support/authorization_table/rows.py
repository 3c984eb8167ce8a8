"""The rows of the table: those of the authorization matrix, and more that need a real broker."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple
from uuid import UUID

from quorate.broker.kafka.api_table import api_table
from quorate.common.acl_types import CLUSTER_NAME, AclOperation, ResourceType
from quorate_proto.v1 import errors_pb2
from tests.support.acls import acl
from tests.support.authorization_rows import (
    CLUSTER_DENIED,
    GROUP,
    GROUP_DENIED,
    ROWS,
    TOPIC,
    TOPIC_DENIED,
    TRANSACTION_DENIED,
    TRANSACTIONAL_ID,
    WHO,
    Row,
    asking_for_epoch,
    cluster,
    group,
    topic,
    transactional_id,
)
from tests.support.kafka_wire import Values, fetching, producing, record_batch

Op = AclOperation
TOPIC_ID: Final = UUID(int=9)
"""Stands for the id of the topic."""

NO_TOPIC: Final = "no-such-topic"
_TOPICS, _LOGGERS, _CLIENT_METRICS, _GROUPS = 2, 8, 16, 32
"""Kinds of resources that have configurations."""
_NO_RIGHT: Final = errors_pb2.NONE
"""The row is about an API that asks for no right."""


class TitledRow(NamedTuple):
    """A row with the number of its API, and its name in the table."""

    key: int
    title: str
    row: Row


def titled_rows() -> list[TitledRow]:
    """Return all rows, in the order in which they are asked."""
    keys = sorted(set(ROWS) | set(MORE_ROWS))
    return [_titled(key, row) for key in keys for row in _rows_of(key)]


def _rows_of(key: int) -> Iterator[Row]:
    yield from ROWS.get(key, ())
    yield from MORE_ROWS.get(key, ())


def _titled(key: int, row: Row) -> TitledRow:
    name = api_table()[key].name.replace("_", " ").title().replace(" ", "")
    title = f"{name} v{row.version}"
    if row.needs:
        pattern, entry = row.needs[0]
        name = "" if pattern.name == CLUSTER_NAME else f" {pattern.name}"
        operation, kind = AclOperation(entry.operation), ResourceType(pattern.resource_type)
        title += f": {operation.name} on {kind.name}{name}"
    return TitledRow(key, f"{title}, {row.about}" if row.about else title, row)


def _renamed_topic(values: Values, name: str) -> Values:
    """Return a request of ``kafka_wire`` for another topic."""
    for field in ("topics", "topic_data"):
        if field in values:
            (only,) = values[field]
            key = "topic" if "topic" in only else "name"
            return {**values, field: [{**only, key: name}]}
    raise AssertionError("it names no topic")


def _listing(name: str, replica_id: int = -1) -> Values:
    partition = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}
    topics = [{"name": name, "partitions": [partition]}]
    return {"replica_id": replica_id, "isolation_level": 0, "topics": topics}


def _metadata(name: str | None, topic_id: UUID | None = None) -> Values:
    return {
        "topics": [{"topic_id": topic_id, "name": name}],
        "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": False,
    }


def _adding(*topics: str) -> Values:
    return {
        "v3_and_below_transactional_id": TRANSACTIONAL_ID,
        "v3_and_below_producer_id": 7,
        "v3_and_below_producer_epoch": 0,
        "v3_and_below_topics": [{"name": name, "partitions": [0]} for name in topics],
    }


def _committing(*topics: str) -> Values:
    partition = {
        "partition_index": 0,
        "committed_offset": 1,
        "committed_leader_epoch": -1,
        "committed_metadata": "",
    }
    return {
        "group_id": GROUP,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        "topics": [{"name": name, "partitions": [partition]} for name in topics],
    }


def _described(resource_type: int, name: str) -> Values:
    resource = {"resource_type": resource_type, "resource_name": name, "configuration_keys": None}
    return {
        "resources": [resource],
        "include_synonyms": False,
        "include_documentation": False,
    }


def _altered(resource_type: int, name: str, key: str, value: str) -> Values:
    config = {"name": key, "config_operation": 0, "value": value}
    resource = {"resource_type": resource_type, "resource_name": name, "configs": [config]}
    return {"resources": [resource], "validate_only": True}


def _open(version: int, values: Values, about: str = "") -> Row:
    return Row(version, values, (), _NO_RIGHT, about=about)


def _hidden(version: int, values: Values, operation: Op, *also: Op) -> Row:
    more = tuple(topic(one, NO_TOPIC) for one in also)
    return Row(version, values, (topic(operation, NO_TOPIC),), TOPIC_DENIED, also=more)


MORE_ROWS: Final[Mapping[int, tuple[Row, ...]]] = MappingProxyType(
    {
        0: (
            _hidden(9, _renamed_topic(producing(record_batch()), NO_TOPIC), Op.WRITE),
            Row(
                9,
                producing(
                    record_batch(transactional_producer_id=7), transactional_id=TRANSACTIONAL_ID
                ),
                (transactional_id(Op.WRITE),),
                TRANSACTION_DENIED,
                also=(topic(Op.WRITE),),
                about="in a transaction",
            ),
        ),
        1: (
            _hidden(12, _renamed_topic(fetching(), NO_TOPIC), Op.READ),
            Row(
                12,
                fetching(session=(0, 0), replica_id=7),
                (cluster(Op.CLUSTER_ACTION),),
                TOPIC_DENIED,
                about="as the follower 7",
            ),
            Row(
                12,
                fetching(replica_id=-2),
                (topic(Op.READ),),
                TOPIC_DENIED,
                about="as a debug consumer",
            ),
        ),
        2: (
            _hidden(6, _listing(NO_TOPIC), Op.DESCRIBE),
            Row(
                6,
                _listing(TOPIC, replica_id=7),
                (topic(Op.DESCRIBE),),
                TOPIC_DENIED,
                about="as the follower 7",
            ),
        ),
        3: (
            _hidden(12, _metadata(NO_TOPIC), Op.DESCRIBE),
            Row(
                12,
                _metadata(None, TOPIC_ID),
                (topic(Op.DESCRIBE),),
                TOPIC_DENIED,
                about="by the id of the topic",
            ),
        ),
        8: (
            Row(
                8,
                _committing(TOPIC, NO_TOPIC),
                (topic(Op.READ, NO_TOPIC),),
                TOPIC_DENIED,
                also=(group(Op.READ), topic(Op.READ)),
                about="beside t",
            ),
        ),
        9: (
            Row(
                8,
                {
                    "groups": [
                        {
                            "group_id": name,
                            "member_id": None,
                            "member_epoch": -1,
                            "topics": [{"name": TOPIC, "partition_indexes": [0]}],
                        }
                        for name in (GROUP, "g-hidden")
                    ],
                    "require_stable": False,
                },
                (group(Op.DESCRIBE),),
                GROUP_DENIED,
                also=(topic(Op.DESCRIBE),),
                about="of two groups",
            ),
            Row(
                7,
                {"group_id": GROUP, "topics": None, "require_stable": False},
                (topic(Op.DESCRIBE),),
                _NO_RIGHT,
                also=(group(Op.DESCRIBE),),
                about="of all topics",
            ),
        ),
        16: (
            Row(
                4,
                {"states_filter": []},
                (group(Op.DESCRIBE), cluster(Op.DESCRIBE)),
                _NO_RIGHT,
            ),
        ),
        17: (_open(1, {"mechanism": "PLAIN"}),),
        18: (_open(2, {}),),
        20: (
            _hidden(5, {"topic_names": [NO_TOPIC], "timeout": 1_000}, Op.DELETE),
            Row(
                6,
                {"topics": [{"name": None, "topic_id": TOPIC_ID}], "timeout": 1_000},
                (topic(Op.DELETE),),
                TOPIC_DENIED,
                own=True,
                about="by the id of the topic",
            ),
            Row(
                6,
                {"topics": [{"name": None, "topic_id": TOPIC_ID}], "timeout": 1_000},
                (topic(Op.DELETE),),
                TOPIC_DENIED,
                also=(topic(Op.DESCRIBE),),
                own=True,
                about="by the id of a topic that may be described",
            ),
        ),
        21: (
            _hidden(
                2,
                {
                    "topics": [
                        {"name": NO_TOPIC, "partitions": [{"partition_index": 0, "offset": -1}]}
                    ],
                    "timeout": 1_000,
                },
                Op.DELETE,
            ),
        ),
        23: (
            Row(
                4,
                asking_for_epoch(replica_id=7),
                (cluster(Op.CLUSTER_ACTION),),
                TOPIC_DENIED,
                about="as the follower 7",
            ),
        ),
        24: (
            Row(
                3,
                _adding(TOPIC, NO_TOPIC, "t-hidden"),
                (topic(Op.WRITE),),
                TOPIC_DENIED,
                also=(transactional_id(Op.WRITE), topic(Op.WRITE, NO_TOPIC)),
                about="of three topics",
            ),
        ),
        19: (
            Row(
                7,
                {
                    "topics": [
                        {
                            "name": TOPIC,
                            "num_partitions": 1,
                            "replication_factor": 1,
                            "assignments": [],
                            "configs": [],
                        }
                    ],
                    "timeout": 1_000,
                    "validate_only": False,
                },
                (topic(Op.CREATE),),
                TOPIC_DENIED,
                about="which exists",
            ),
        ),
        32: (
            _hidden(4, _described(_TOPICS, NO_TOPIC), Op.DESCRIBE_CONFIGS),
            Row(
                4,
                _described(_LOGGERS, "1"),
                (cluster(Op.DESCRIBE_CONFIGS),),
                CLUSTER_DENIED,
                about="of the broker's loggers",
            ),
            Row(
                4,
                _described(_CLIENT_METRICS, "all"),
                (cluster(Op.DESCRIBE_CONFIGS),),
                CLUSTER_DENIED,
                about="of clients' metrics",
            ),
            _open(4, _described(_GROUPS, GROUP), "of a group"),
        ),
        36: (_open(2, {"auth_bytes": b"\0none\0none-secret"}),),
        37: (
            _hidden(
                3,
                {
                    "topics": [{"name": NO_TOPIC, "count": 2, "assignments": None}],
                    "timeout": 1_000,
                    "validate_only": True,
                },
                Op.ALTER,
            ),
        ),
        39: (_open(2, {"hmac": b"unknown", "renew_period": -1}),),
        40: (_open(2, {"hmac": b"unknown", "expiry_time_period": -1}),),
        41: (
            Row(
                3,
                {"owners": [{"principal_type": "User", "principal_name": "bob"}]},
                (acl(WHO, Op.DESCRIBE_TOKENS, ResourceType.USER, "User:bob"),),
                _NO_RIGHT,
            ),
        ),
        44: (
            _hidden(1, _altered(_TOPICS, NO_TOPIC, "retention.ms", "1"), Op.ALTER_CONFIGS),
            Row(
                1,
                _altered(_LOGGERS, "1", "kafka.server.KafkaApis", "INFO"),
                (cluster(Op.ALTER_CONFIGS),),
                CLUSTER_DENIED,
                about="of the broker's loggers",
            ),
            Row(
                1,
                _altered(_CLIENT_METRICS, "all", "interval.ms", "1000"),
                (cluster(Op.ALTER_CONFIGS),),
                CLUSTER_DENIED,
                about="of clients' metrics",
            ),
            _open(
                1, _altered(_GROUPS, GROUP, "consumer.session.timeout.ms", "50000"), "of a group"
            ),
        ),
        71: (_open(0, {"client_instance_id": None}),),
        72: (
            _open(
                0,
                {
                    "client_instance_id": UUID(int=7),
                    "subscription_id": 0,
                    "terminating": False,
                    "compression_type": 0,
                    "metrics": b"",
                },
            ),
        ),
        60: (_open(0, {"include_cluster_authorized_operations": False}),),
        61: (_hidden(0, {"topics": [{"name": NO_TOPIC, "partition_indexes": [0]}]}, Op.READ),),
        66: (
            Row(
                0,
                {"state_filters": [], "producer_id_filters": []},
                (transactional_id(Op.DESCRIBE),),
                _NO_RIGHT,
            ),
        ),
        74: (
            Row(
                0,
                {},
                (cluster(Op.DESCRIBE_CONFIGS),),
                CLUSTER_DENIED,
            ),
        ),
        75: (
            _hidden(
                0,
                {
                    "topics": [{"name": NO_TOPIC}],
                    "response_partition_limit": 10,
                    "cursor": None,
                },
                Op.DESCRIBE,
            ),
        ),
    }
)
"""The rows by API key. Rows about what does not exist show that a refusal does not tell whether it
does."""
