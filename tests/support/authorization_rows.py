"""Lists what each Kafka API asks of its caller's rights: one row per API, for the authorization
matrix.

Whoever adds an API adds its row here, or says in ``OPEN`` why it needs no right.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from quorate.common.acl_types import CLUSTER_NAME, AclOperation, ResourceType
from quorate_proto.v1 import errors_pb2
from tests.support.acls import Binding, acl
from tests.support.kafka_wire import Values, fetching, producing, record_batch

Op = AclOperation
TOPIC: Final = "t"
"""The topic that requests are about: it exists, with one partition."""

NEW_TOPIC: Final = "new"
GROUP: Final = "g"
TRANSACTIONAL_ID: Final = "pay"
WHO: Final = "User:alice"

TOPIC_DENIED: Final = errors_pb2.TOPIC_AUTHORIZATION_FAILED
GROUP_DENIED: Final = errors_pb2.GROUP_AUTHORIZATION_FAILED
TRANSACTION_DENIED: Final = errors_pb2.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
CLUSTER_DENIED: Final = errors_pb2.CLUSTER_AUTHORIZATION_FAILED


@dataclass(frozen=True)
class Row:
    """``needs``: entries any one of which is enough; a deny of each is refused. ``also``: entries
    that it takes besides. ``denied``: the code, anywhere in the answer.

    For real brokers (``authorization_table``): ``about`` tells the row from others of its API and
    right. With ``own`` each client asks about a topic, group and transaction of its own, because
    the request changes or deletes it. Answers with a code of ``retried`` are not the last ones.
    """

    version: int
    request: Values
    needs: tuple[Binding, ...]
    denied: int
    also: tuple[Binding, ...] = ()
    about: str = ""
    own: bool = False
    retried: tuple[str, ...] = ()


def topic(operation: Op, name: str = TOPIC) -> Binding:
    return acl(WHO, operation, ResourceType.TOPIC, name)


def group(operation: Op) -> Binding:
    return acl(WHO, operation, ResourceType.GROUP, GROUP)


def transactional_id(operation: Op) -> Binding:
    return acl(WHO, operation, ResourceType.TRANSACTIONAL_ID, TRANSACTIONAL_ID)


def cluster(operation: Op) -> Binding:
    return acl(WHO, operation, ResourceType.CLUSTER, CLUSTER_NAME)


_ANY_ACL: Final = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": "User:nobody",
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}


_MEMBER: Final = {"group_id": GROUP, "member_id": "m"}
_COMMITTED: Final = [{"name": TOPIC, "partition_indexes": [0]}]
_COMMITTING: Final = {
    "group_id": GROUP,
    "generation_id_or_member_epoch": -1,
    "member_id": "",
    "group_instance_id": None,
    "topics": [
        {
            "name": TOPIC,
            "partitions": [
                {
                    "partition_index": 0,
                    "committed_offset": 1,
                    "committed_leader_epoch": -1,
                    "committed_metadata": "",
                }
            ],
        }
    ],
}
_COMMITTING_IN_TRANSACTION: Final = {
    **_COMMITTING,
    "transactional_id": TRANSACTIONAL_ID,
    "producer_id": 1,
    "producer_epoch": 0,
}
_HEARTBEAT: Final = {
    "group_id": GROUP,
    "member_id": "m",
    "member_epoch": 0,
    "instance_id": None,
    "rack_id": None,
    "rebalance_timeout": 60_000,
    "subscribed_topic_names": [TOPIC],
    "subscribed_topic_regex": None,
    "server_assignor": None,
    "topic_partitions": [],
}
_FORGETTING: Final = {
    "group_id": GROUP,
    "topics": [{"name": TOPIC, "partitions": [{"partition_index": 0}]}],
}


_TOPIC: Final = 2


def _describing(resource_type: int, name: str) -> Values:
    resource = {
        "resource_type": resource_type,
        "resource_name": name,
        "configuration_keys": None,
    }
    return {"resources": [resource], "include_synonyms": False, "include_documentation": False}


def _configuring(resource_type: int, name: str, operation: int | None = None) -> Values:
    """``operation``: of IncrementalAlterConfigs."""
    name_of_config = "retention.ms" if resource_type == _TOPIC else "log.retention.ms"
    config: Values = {"name": name_of_config, "value": "1"}
    if operation is not None:
        config["config_operation"] = operation
    resource = {"resource_type": resource_type, "resource_name": name, "configs": [config]}
    return {"resources": [resource], "validate_only": True}


def asking_for_epoch(replica_id: int) -> Values:
    """Return an OffsetForLeaderEpoch request of this replica, or of a client with -1."""
    partition = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}
    return {"replica_id": replica_id, "topics": [{"topic": TOPIC, "partitions": [partition]}]}


_PRODUCER: Final = {
    "transactional_id": TRANSACTIONAL_ID,
    "producer_id": 7,
    "producer_epoch": 0,
}
_ADDING: Final = {
    "v3_and_below_transactional_id": TRANSACTIONAL_ID,
    "v3_and_below_producer_id": 7,
    "v3_and_below_producer_epoch": 0,
    "v3_and_below_topics": [{"name": TOPIC, "partitions": [0]}],
    "transactions": [
        {
            "transactional_id": TRANSACTIONAL_ID,
            "producer_id": 7,
            "producer_epoch": 0,
            "verify_only": False,
            "topics": [{"name": TOPIC, "partitions": [0]}],
        }
    ],
}


_SHARE_BEAT: Final = {
    "group_id": GROUP,
    "member_id": "m",
    "member_epoch": 0,
    "rack_id": None,
    "subscribed_topic_names": [TOPIC],
}
_SHARE_FETCH: Final = {
    "group_id": GROUP,
    "member_id": "m",
    "share_session_epoch": 0,
    "max_wait": 0,
    "min_bytes": 0,
    "max_bytes": 1_000,
    "max_records": 1,
    "batch_size": 1,
    "share_acquire_mode": 0,
    "is_renew_ack": False,
    "topics": [
        {"name": TOPIC, "partitions": [{"partition_index": 0, "acknowledgement_batches": []}]}
    ],
    "forgotten_topics_data": [],
}
_SHARE_ACK: Final = {
    "group_id": GROUP,
    "member_id": "without a session",
    "share_session_epoch": 1,
    "is_renew_ack": False,
    "topics": [],
}
_SHARE_OFFSETS: Final = {
    "groups": [{"group_id": GROUP, "topics": [{"topic_name": TOPIC, "partitions": [0]}]}]
}
_SHARE_RESET: Final = {
    "group_id": GROUP,
    "topics": [{"topic_name": TOPIC, "partitions": [{"partition_index": 0, "start_offset": 0}]}],
}
_SHARE_FORGET: Final = {"group_id": GROUP, "topics": [{"topic_name": TOPIC}]}


def _share_state(version: int, **fields: object) -> Row:
    """A question to the share coordinator about a partition."""
    partition = {"partition": 0, **fields}
    request = {"group_id": GROUP, "topics": [{"name": TOPIC, "partitions": [partition]}]}
    return Row(version, request, (cluster(Op.CLUSTER_ACTION),), CLUSTER_DENIED)


ROWS: Final[Mapping[int, tuple[Row, ...]]] = MappingProxyType(
    {
        0: (
            Row(9, producing(record_batch()), (topic(Op.WRITE),), TOPIC_DENIED),
            Row(
                9,
                producing(record_batch(), transactional_id=TRANSACTIONAL_ID),
                (transactional_id(Op.WRITE),),
                TRANSACTION_DENIED,
                also=(topic(Op.WRITE),),
            ),
        ),
        1: (Row(12, fetching(), (topic(Op.READ),), TOPIC_DENIED),),
        2: (
            Row(
                6,
                {
                    "replica_id": -1,
                    "isolation_level": 0,
                    "timeout": 1_000,
                    "topics": [
                        {
                            "name": TOPIC,
                            "partitions": [
                                {
                                    "partition_index": 0,
                                    "current_leader_epoch": -1,
                                    "timestamp": -1,
                                }
                            ],
                        }
                    ],
                },
                (topic(Op.DESCRIBE), topic(Op.READ)),
                TOPIC_DENIED,
            ),
        ),
        3: (
            Row(
                9,
                {
                    "topics": [{"topic_id": None, "name": TOPIC}],
                    "allow_auto_topic_creation": True,
                    "include_cluster_authorized_operations": False,
                    "include_topic_authorized_operations": False,
                },
                (topic(Op.DESCRIBE), topic(Op.WRITE)),
                TOPIC_DENIED,
            ),
            Row(
                9,
                {
                    "topics": [{"topic_id": None, "name": NEW_TOPIC}],
                    "allow_auto_topic_creation": True,
                    "include_cluster_authorized_operations": False,
                    "include_topic_authorized_operations": False,
                },
                (topic(Op.CREATE, NEW_TOPIC), cluster(Op.CREATE)),
                TOPIC_DENIED,
                also=(topic(Op.DESCRIBE, NEW_TOPIC),),
                retried=("UNKNOWN_TOPIC_OR_PARTITION",),
            ),
        ),
        9: (
            Row(
                7,
                {
                    "group_id": GROUP,
                    "topics": _COMMITTED,
                    "groups": [
                        {
                            "group_id": GROUP,
                            "member_id": None,
                            "member_epoch": -1,
                            "topics": _COMMITTED,
                        }
                    ],
                    "require_stable": False,
                },
                (group(Op.DESCRIBE), group(Op.READ)),
                GROUP_DENIED,
                also=(topic(Op.DESCRIBE),),
            ),
            Row(
                7,
                {
                    "group_id": GROUP,
                    "topics": _COMMITTED,
                    "groups": [
                        {
                            "group_id": GROUP,
                            "member_id": None,
                            "member_epoch": -1,
                            "topics": _COMMITTED,
                        }
                    ],
                    "require_stable": False,
                },
                (topic(Op.DESCRIBE),),
                TOPIC_DENIED,
                also=(group(Op.DESCRIBE),),
            ),
        ),
        8: (
            Row(8, _COMMITTING, (group(Op.READ),), GROUP_DENIED, also=(topic(Op.READ),)),
            Row(8, _COMMITTING, (topic(Op.READ),), TOPIC_DENIED, also=(group(Op.READ),)),
        ),
        27: (
            Row(
                1,
                {
                    "markers": [
                        {
                            "producer_id": 7,
                            "producer_epoch": 0,
                            "transaction_result": False,
                            "topics": [{"name": TOPIC, "partition_indexes": [0]}],
                            "coordinator_epoch": 0,
                        }
                    ]
                },
                (cluster(Op.ALTER), cluster(Op.CLUSTER_ACTION)),
                CLUSTER_DENIED,
            ),
        ),
        61: (
            Row(
                0,
                {"topics": [{"name": TOPIC, "partition_indexes": [0]}]},
                (topic(Op.READ),),
                TOPIC_DENIED,
            ),
        ),
        65: (
            Row(
                0,
                {"transactional_ids": [TRANSACTIONAL_ID]},
                (transactional_id(Op.DESCRIBE),),
                TRANSACTION_DENIED,
                own=True,
            ),
        ),
        28: (
            Row(
                2,
                _COMMITTING_IN_TRANSACTION,
                (transactional_id(Op.WRITE),),
                errors_pb2.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                also=(group(Op.READ), topic(Op.READ)),
            ),
            Row(
                2,
                _COMMITTING_IN_TRANSACTION,
                (group(Op.READ),),
                GROUP_DENIED,
                also=(transactional_id(Op.WRITE), topic(Op.READ)),
            ),
            Row(
                2,
                _COMMITTING_IN_TRANSACTION,
                (topic(Op.READ),),
                TOPIC_DENIED,
                also=(transactional_id(Op.WRITE), group(Op.READ)),
            ),
        ),
        11: (
            Row(
                5,
                {
                    "group_id": GROUP,
                    "session_timeout": 10_000,
                    "rebalance_timeout": 10_000,
                    "member_id": "",
                    "group_instance_id": None,
                    "protocol_type": "consumer",
                    "protocols": [{"name": "range", "metadata": b""}],
                },
                (group(Op.READ),),
                GROUP_DENIED,
            ),
        ),
        12: (
            Row(
                3,
                {**_MEMBER, "generation_id": 1, "group_instance_id": None},
                (group(Op.READ),),
                GROUP_DENIED,
            ),
        ),
        13: (
            Row(
                2,
                {**_MEMBER, "members": [{"member_id": "m", "group_instance_id": None}]},
                (group(Op.READ),),
                GROUP_DENIED,
            ),
        ),
        14: (
            Row(
                3,
                {**_MEMBER, "generation_id": 1, "group_instance_id": None, "assignments": []},
                (group(Op.READ),),
                GROUP_DENIED,
            ),
        ),
        15: (
            Row(
                5,
                {"groups": [GROUP], "include_authorized_operations": False},
                (group(Op.DESCRIBE), group(Op.READ)),
                GROUP_DENIED,
            ),
        ),
        42: (Row(1, {"groups_names": [GROUP]}, (group(Op.DELETE),), GROUP_DENIED, own=True),),
        68: (
            Row(
                1,
                _HEARTBEAT,
                (group(Op.READ),),
                GROUP_DENIED,
                also=(topic(Op.DESCRIBE),),
            ),
            Row(1, _HEARTBEAT, (topic(Op.DESCRIBE),), TOPIC_DENIED, also=(group(Op.READ),)),
        ),
        69: (
            Row(
                1,
                {"group_ids": [GROUP], "include_authorized_operations": False},
                (group(Op.DESCRIBE), group(Op.READ)),
                GROUP_DENIED,
            ),
        ),
        76: (
            Row(1, _SHARE_BEAT, (group(Op.READ),), GROUP_DENIED, also=(topic(Op.DESCRIBE),)),
            Row(1, _SHARE_BEAT, (topic(Op.DESCRIBE),), TOPIC_DENIED, also=(group(Op.READ),)),
        ),
        77: (
            Row(
                1,
                {"group_ids": [GROUP], "include_authorized_operations": False},
                (group(Op.DESCRIBE), group(Op.READ)),
                GROUP_DENIED,
            ),
        ),
        78: (
            Row(2, _SHARE_FETCH, (group(Op.READ),), GROUP_DENIED, also=(topic(Op.READ),)),
            Row(2, _SHARE_FETCH, (topic(Op.READ),), TOPIC_DENIED, also=(group(Op.READ),)),
        ),
        79: (Row(2, _SHARE_ACK, (group(Op.READ),), GROUP_DENIED, also=(topic(Op.READ),)),),
        83: (_share_state(0, state_epoch=1, start_offset=0),),
        84: (_share_state(0, leader_epoch=1),),
        85: (
            _share_state(
                1,
                state_epoch=1,
                leader_epoch=1,
                start_offset=0,
                delivery_complete_count=0,
                state_batches=[],
            ),
        ),
        86: (_share_state(0),),
        87: (_share_state(1, leader_epoch=1),),
        90: (
            Row(
                1,
                _SHARE_OFFSETS,
                (group(Op.DESCRIBE), group(Op.READ)),
                GROUP_DENIED,
                also=(topic(Op.DESCRIBE),),
            ),
        ),
        91: (
            Row(0, _SHARE_RESET, (group(Op.READ),), GROUP_DENIED, also=(topic(Op.READ),)),
            Row(0, _SHARE_RESET, (topic(Op.READ),), TOPIC_DENIED, (group(Op.READ),), own=True),
        ),
        92: (Row(0, _SHARE_FORGET, (group(Op.DELETE),), GROUP_DENIED, also=(topic(Op.READ),)),),
        47: (
            Row(0, _FORGETTING, (group(Op.DELETE),), GROUP_DENIED, also=(topic(Op.READ),)),
            Row(0, _FORGETTING, (topic(Op.READ),), TOPIC_DENIED, also=(group(Op.DELETE),)),
        ),
        10: (
            Row(
                4,
                {"key_type": 0, "coordinator_keys": [GROUP], "key": GROUP},
                (group(Op.DESCRIBE), group(Op.READ)),
                GROUP_DENIED,
            ),
            Row(
                4,
                {
                    "key_type": 1,
                    "coordinator_keys": [TRANSACTIONAL_ID],
                    "key": TRANSACTIONAL_ID,
                },
                (transactional_id(Op.DESCRIBE), transactional_id(Op.WRITE)),
                TRANSACTION_DENIED,
            ),
        ),
        19: (
            Row(
                7,
                {
                    "topics": [
                        {
                            "name": NEW_TOPIC,
                            "num_partitions": 1,
                            "replication_factor": 1,
                            "assignments": [],
                            "configs": [],
                        }
                    ],
                    "timeout": 1_000,
                    "validate_only": False,
                },
                (topic(Op.CREATE, NEW_TOPIC), cluster(Op.CREATE)),
                TOPIC_DENIED,
                also=(topic(Op.DESCRIBE_CONFIGS, NEW_TOPIC),),
            ),
        ),
        20: (
            Row(
                5,
                {
                    "topic_names": [TOPIC],
                    "topics": [{"name": TOPIC, "topic_id": None}],
                    "timeout": 1_000,
                },
                (topic(Op.DELETE),),
                TOPIC_DENIED,
                own=True,
            ),
        ),
        21: (
            Row(
                2,
                {
                    "topics": [
                        {"name": TOPIC, "partitions": [{"partition_index": 0, "offset": -1}]}
                    ],
                    "timeout": 1_000,
                },
                (topic(Op.DELETE),),
                TOPIC_DENIED,
                own=True,
            ),
        ),
        22: (
            Row(
                4,
                {
                    "transactional_id": None,
                    "transaction_timeout": 1_000,
                    "producer_id": -1,
                    "producer_epoch": -1,
                },
                (cluster(Op.IDEMPOTENT_WRITE), topic(Op.WRITE, "any")),
                CLUSTER_DENIED,
            ),
            Row(
                4,
                {
                    "transactional_id": TRANSACTIONAL_ID,
                    "transaction_timeout": 1_000,
                    "producer_id": -1,
                    "producer_epoch": -1,
                },
                (transactional_id(Op.WRITE),),
                TRANSACTION_DENIED,
            ),
        ),
        23: (
            Row(
                4,
                asking_for_epoch(replica_id=-1),
                (topic(Op.DESCRIBE),),
                TOPIC_DENIED,
            ),
        ),
        24: (
            Row(
                3,
                _ADDING,
                (transactional_id(Op.WRITE),),
                TRANSACTION_DENIED,
                also=(topic(Op.WRITE),),
            ),
            Row(
                3,
                _ADDING,
                (topic(Op.WRITE),),
                TOPIC_DENIED,
                also=(transactional_id(Op.WRITE),),
            ),
            Row(5, _ADDING, (cluster(Op.CLUSTER_ACTION),), CLUSTER_DENIED, about="of a broker"),
        ),
        25: (
            Row(
                3,
                {**_PRODUCER, "group_id": GROUP},
                (transactional_id(Op.WRITE),),
                TRANSACTION_DENIED,
                also=(group(Op.READ),),
            ),
            Row(
                3,
                {**_PRODUCER, "group_id": GROUP},
                (group(Op.READ),),
                GROUP_DENIED,
                also=(transactional_id(Op.WRITE),),
            ),
        ),
        26: (
            Row(
                3,
                {**_PRODUCER, "committed": True},
                (transactional_id(Op.WRITE),),
                TRANSACTION_DENIED,
            ),
        ),
        29: (Row(3, _ANY_ACL, (cluster(Op.DESCRIBE), cluster(Op.ALTER)), CLUSTER_DENIED),),
        30: (
            Row(
                3,
                {
                    "creations": [
                        {
                            "resource_type": 2,
                            "resource_name": TOPIC,
                            "resource_pattern_type": 3,
                            "principal": "User:bob",
                            "host": "*",
                            "operation": 3,
                            "permission_type": 3,
                        }
                    ]
                },
                (cluster(Op.ALTER),),
                CLUSTER_DENIED,
            ),
        ),
        31: (Row(3, {"filters": [_ANY_ACL]}, (cluster(Op.ALTER),), CLUSTER_DENIED),),
        32: (
            Row(4, _describing(2, TOPIC), (topic(Op.DESCRIBE_CONFIGS),), TOPIC_DENIED),
            Row(4, _describing(4, "1"), (cluster(Op.DESCRIBE_CONFIGS),), CLUSTER_DENIED),
        ),
        33: (
            Row(2, _configuring(2, TOPIC), (topic(Op.ALTER_CONFIGS),), TOPIC_DENIED),
            Row(2, _configuring(4, "1"), (cluster(Op.ALTER_CONFIGS),), CLUSTER_DENIED),
        ),
        34: (
            Row(
                2,
                {
                    "dirs": [{"path": "/d", "topics": [{"name": TOPIC, "partitions": [0]}]}],
                },
                (cluster(Op.ALTER),),
                CLUSTER_DENIED,
            ),
        ),
        35: (
            Row(
                4,
                {"topics": [{"topic": TOPIC, "partitions": [0]}]},
                (cluster(Op.DESCRIBE), cluster(Op.ALTER)),
                CLUSTER_DENIED,
            ),
        ),
        37: (
            Row(
                3,
                {
                    "topics": [{"name": TOPIC, "count": 2, "assignments": None}],
                    "timeout": 1_000,
                    "validate_only": True,
                },
                (topic(Op.ALTER),),
                TOPIC_DENIED,
            ),
        ),
        38: (
            Row(
                3,
                {
                    "owner_principal_type": "User",
                    "owner_principal_name": "bob",
                    "renewers": [],
                    "max_lifetime": -1,
                },
                (acl(WHO, Op.CREATE_TOKENS, ResourceType.USER, "User:bob"),),
                errors_pb2.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
            ),
        ),
        43: (
            Row(
                2,
                {
                    "election_type": 0,
                    "topic_partitions": [{"topic": TOPIC, "partitions": [0]}],
                    "timeout": 1_000,
                },
                (cluster(Op.ALTER),),
                CLUSTER_DENIED,
            ),
        ),
        44: (
            Row(1, _configuring(2, TOPIC, 0), (topic(Op.ALTER_CONFIGS),), TOPIC_DENIED),
            Row(1, _configuring(4, "", 0), (cluster(Op.ALTER_CONFIGS),), CLUSTER_DENIED),
        ),
        45: (
            Row(
                0,
                {
                    "timeout": 1_000,
                    "topics": [
                        {"name": TOPIC, "partitions": [{"partition_index": 0, "replicas": [1]}]}
                    ],
                },
                (cluster(Op.ALTER),),
                CLUSTER_DENIED,
            ),
        ),
        46: (Row(0, {"timeout": 1_000, "topics": None}, (cluster(Op.DESCRIBE),), CLUSTER_DENIED),),
        48: (
            Row(
                1,
                {"components": [], "strict": False},
                (cluster(Op.DESCRIBE_CONFIGS), cluster(Op.ALTER_CONFIGS)),
                CLUSTER_DENIED,
            ),
        ),
        49: (
            Row(
                1,
                {
                    "entries": [
                        {
                            "entity": [{"entity_type": "user", "entity_name": "bob"}],
                            "ops": [{"key": "request_percentage", "value": 5.0, "remove": False}],
                        }
                    ],
                    "validate_only": True,
                },
                (cluster(Op.ALTER_CONFIGS),),
                CLUSTER_DENIED,
            ),
        ),
        50: (
            Row(
                0,
                {"users": [{"name": "bob"}]},
                (cluster(Op.DESCRIBE), cluster(Op.ALTER)),
                CLUSTER_DENIED,
            ),
        ),
        55: (
            Row(
                2,
                {
                    "topics": [
                        {"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}
                    ]
                },
                (cluster(Op.DESCRIBE), cluster(Op.ALTER)),
                CLUSTER_DENIED,
            ),
        ),
        64: (Row(0, {"broker_id": 9}, (cluster(Op.ALTER),), CLUSTER_DENIED),),
        80: (
            Row(
                1,
                {
                    "cluster_id": None,
                    "timeout": 1_000,
                    "voter_id": 9,
                    "voter_directory_id": None,
                    "listeners": [],
                    "ack_when_committed": True,
                },
                (cluster(Op.ALTER),),
                CLUSTER_DENIED,
            ),
        ),
        81: (
            Row(
                0,
                {"cluster_id": None, "voter_id": 9, "voter_directory_id": None},
                (cluster(Op.ALTER),),
                CLUSTER_DENIED,
            ),
        ),
        74: (
            Row(
                1,
                {"resource_types": []},
                (cluster(Op.DESCRIBE_CONFIGS), cluster(Op.ALTER_CONFIGS)),
                CLUSTER_DENIED,
            ),
        ),
        75: (
            Row(
                0,
                {
                    "topics": [{"name": TOPIC}],
                    "response_partition_limit": 10,
                    "cursor": None,
                },
                (topic(Op.DESCRIBE), topic(Op.READ)),
                TOPIC_DENIED,
            ),
        ),
        51: (
            Row(
                0,
                {
                    "deletions": [],
                    "upsertions": [
                        {
                            "name": "bob",
                            "mechanism": 1,
                            "iterations": 4_096,
                            "salt": b"salt",
                            "salted_password": bytes(32),
                        }
                    ],
                },
                (cluster(Op.ALTER),),
                CLUSTER_DENIED,
            ),
        ),
        57: (
            Row(
                1,
                {
                    "timeout": 1_000,
                    "feature_updates": [
                        {
                            "feature": "metadata_version",
                            "max_version_level": 2,
                            "upgrade_type": 1,
                            "allow_downgrade": False,
                        }
                    ],
                    "validate_only": True,
                },
                (cluster(Op.ALTER),),
                CLUSTER_DENIED,
            ),
        ),
    }
)
"""The rows by API key. An API that asks for several rights has several rows."""

OPEN: Final[Mapping[int, str]] = MappingProxyType(
    {
        16: "lists the groups that one may describe; see test_groups.py",
        17: "how to authenticate, for those who have not yet",
        18: "which versions are served, for those who have not authenticated yet",
        36: "to authenticate",
        39: "whoever holds the token may renew it, if it is theirs: the token says so",
        40: "as 39",
        41: "everybody sees their own tokens; others': see test_token_access.py",
        71: "pushes its own metrics, as in Kafka: operators say which",
        72: "as 71",
        66: "lists the transactions that one may describe; see test_transaction_admin.py",
        60: "where the brokers are, as Kafka: without it nobody finds anything",
    }
)
"""APIs that ask for no right, and why."""
