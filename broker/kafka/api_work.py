"""The price of each API: how large its requests may be, and how large ones are carried out.

Every API has its line here, because ``api_table`` finds none without it. The numbers are far above
what clients send. A request over many items that do not depend on each other is divided. The others
either have few items, or have handlers that give way by themselves.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from quorate.broker.kafka.connection.parted_answers import ItemDivision
from quorate.broker.kafka.connection.request_work import Items, Repeated, RequestWork
from quorate.broker.kafka.records.produce_api import ProduceDivision

_MANY: Final = 50_000
"""The price of requests over partitions and other items that a client may have very many of."""

_SOME: Final = 2_000
"""The price of requests whose items cost much, or that are carried out in one go."""

_SEVERAL: Final = 5 * _SOME
"""The price of requests over items that cost something each."""

_FEW: Final = 256
"""The price of requests that are about one thing, with a few names and tagged fields."""

_ANY_BYTES: Final = 2**31 - 1
"""No limit of its own, for records: their limit is socket.request.max.bytes, which an operator may
set."""

_FEW_ITEMS: Final = RequestWork(elements_max=_FEW)
_SOME_ITEMS: Final = RequestWork(elements_max=_SOME)
_LIST: Final = RequestWork(elements_max=_FEW, has_long_answer=True)


def _by_partition(
    field: str = "topics",
    inner: str = "partitions",
    results: str = "topics",
    inner_results: str = "partitions",
    *,
    name: str = "name",
    at_once: int = 16,
    elements_max: int = _MANY,
    repeated: Repeated = Repeated.KEPT,
    parts_overlap: bool = False,
) -> RequestWork:
    """Return the work of a request over the partitions of topics, divided by partitions.

    ``name`` is the field with the topic, in the request and in the response.
    """
    items = Items(field=field, name=(name,), inner=inner, at_once=at_once, repeated=repeated)
    return RequestWork(
        elements_max=elements_max,
        division=ItemDivision(items=items, results=results, inner_results=inner_results, name=name),
        parts_overlap=parts_overlap,
    )


def _by_item(
    field: str,
    results: str,
    name: tuple[str, ...] = (),
    *,
    at_once: int = 16,
    elements_max: int = _MANY,
    repeated: Repeated = Repeated.KEPT,
    older: Items | None = None,
) -> RequestWork:
    """Return the work of a request over items that each have one result."""
    items = Items(field=field, name=name, at_once=at_once, repeated=repeated, older=older)
    division = ItemDivision(items=items, results=results)
    return RequestWork(elements_max=elements_max, division=division)


_RECORDS: Final = {
    "Produce": RequestWork(
        elements_max=_MANY,
        frame_bytes_max=_ANY_BYTES,
        division=ProduceDivision(),
        parts_overlap=True,
        waits_for_room=True,
    ),
    "Fetch": RequestWork(elements_max=_SOME * 10, is_long_poll=True),
    "ListOffsets": _by_partition(),
    "DeleteRecords": _by_partition(elements_max=_SEVERAL, parts_overlap=True),
    "OffsetForLeaderEpoch": _by_partition(name="topic"),
}

_METADATA: Final = {
    "Metadata": RequestWork(elements_max=_MANY),
    "DescribeQuorum": _FEW_ITEMS,
    "DescribeCluster": _FEW_ITEMS,
    "DescribeTopicPartitions": RequestWork(elements_max=_MANY, has_long_answer=True),
    "ApiVersions": _FEW_ITEMS,
}

_GROUPS: Final = {
    "OffsetCommit": _by_partition(at_once=250),
    "OffsetFetch": RequestWork(elements_max=_MANY, has_long_answer=True),
    "FindCoordinator": RequestWork(elements_max=_MANY, has_long_answer=True),
    "JoinGroup": _FEW_ITEMS,
    "Heartbeat": _FEW_ITEMS,
    "LeaveGroup": _SOME_ITEMS,
    # The leader sends the assignments of all members.
    "SyncGroup": RequestWork(elements_max=_SEVERAL, frame_bytes_max=32 << 20, is_long_poll=True),
    "DescribeGroups": _by_item("groups", "groups", at_once=1, repeated=Repeated.DROPPED),
    "ListGroups": _LIST,
    "DeleteGroups": _by_item(
        "groups_names", "results", at_once=2, elements_max=_SEVERAL, repeated=Repeated.DROPPED
    ),
    "OffsetDelete": _by_partition(at_once=250),
    # A member names all partitions that it has.
    "ConsumerGroupHeartbeat": RequestWork(elements_max=_MANY),
    "ConsumerGroupDescribe": _by_item("group_ids", "groups", at_once=1, repeated=Repeated.DROPPED),
}

_TRANSACTIONS: Final = {
    "InitProducerId": _FEW_ITEMS,
    "AddPartitionsToTxn": _SOME_ITEMS,
    "AddOffsetsToTxn": _FEW_ITEMS,
    "EndTxn": _FEW_ITEMS,
    "WriteTxnMarkers": _SOME_ITEMS,
    "TxnOffsetCommit": _by_partition(at_once=250),
    # A partition may have very many producers, and a transaction very many partitions.
    "DescribeProducers": _by_partition(
        inner="partition_indexes", at_once=1, repeated=Repeated.DROPPED
    ),
    "DescribeTransactions": _by_item(
        "transactional_ids", "transaction_states", at_once=1, repeated=Repeated.DROPPED
    ),
    "ListTransactions": RequestWork(elements_max=_SOME, has_long_answer=True),
}

_SECURITY: Final = {
    "SaslHandshake": _FEW_ITEMS,
    "SaslAuthenticate": _FEW_ITEMS,
    "DescribeAcls": _LIST,
    "CreateAcls": _by_item("creations", "results", at_once=100, elements_max=_SEVERAL),
    # Each filter is compared with every entry.
    "DeleteAcls": _by_item("filters", "filter_results", at_once=1, elements_max=_SOME),
    "CreateDelegationToken": _FEW_ITEMS,
    "RenewDelegationToken": _FEW_ITEMS,
    "ExpireDelegationToken": _FEW_ITEMS,
    "DescribeDelegationToken": RequestWork(elements_max=_FEW, has_long_answer=True),
    "DescribeUserScramCredentials": RequestWork(elements_max=_SOME, has_long_answer=True),
    "AlterUserScramCredentials": _FEW_ITEMS,
}

_TOPIC: Final = ("name",)
_RESOURCE: Final = ("resource_type", "resource_name")

_ALTERED_CONFIGS: Final = _by_item(
    "resources",
    "responses",
    _RESOURCE,
    at_once=50,
    elements_max=_SEVERAL,
    repeated=Repeated.TOGETHER,
)

_ADMIN: Final = {
    "CreateTopics": _by_item(
        "topics",
        "topics",
        _TOPIC,
        at_once=100,
        elements_max=_SEVERAL,
        repeated=Repeated.TOGETHER,
    ),
    "DeleteTopics": _by_item(
        "topics",
        "responses",
        ("name", "topic_id"),
        at_once=25,
        elements_max=_SEVERAL,
        repeated=Repeated.TOGETHER,
        older=Items(field="topic_names", at_once=25, repeated=Repeated.TOGETHER),
    ),
    "DescribeConfigs": _by_item(
        "resources",
        "results",
        _RESOURCE,
        at_once=1,
        elements_max=_SEVERAL,
        repeated=Repeated.DROPPED,
    ),
    "AlterConfigs": _ALTERED_CONFIGS,
    "AlterReplicaLogDirs": _SOME_ITEMS,
    "DescribeLogDirs": RequestWork(elements_max=_MANY, has_long_answer=True),
    "CreatePartitions": _by_item(
        "topics",
        "results",
        _TOPIC,
        at_once=100,
        elements_max=_SEVERAL,
        repeated=Repeated.TOGETHER,
    ),
    "ElectLeaders": _by_partition(
        "topic_partitions",
        results="replica_election_results",
        inner_results="partition_result",
        name="topic",
        at_once=250,
    ),
    "IncrementalAlterConfigs": _ALTERED_CONFIGS,
    "AlterPartitionReassignments": _by_partition(results="responses", at_once=250),
    "ListPartitionReassignments": _by_partition(inner="partition_indexes", at_once=250),
    "DescribeClientQuotas": _LIST,
    "AlterClientQuotas": _SOME_ITEMS,
    "UpdateFeatures": _FEW_ITEMS,
    "UnregisterBroker": _FEW_ITEMS,
    "ListConfigResources": _LIST,
    "AddRaftVoter": _FEW_ITEMS,
    "RemoveRaftVoter": _FEW_ITEMS,
}

_TELEMETRY: Final = {"GetTelemetrySubscriptions": _FEW_ITEMS, "PushTelemetry": _FEW_ITEMS}

_SHARES: Final = {
    "ShareGroupHeartbeat": RequestWork(elements_max=_SEVERAL * 2),
    "ShareGroupDescribe": _by_item("group_ids", "groups", at_once=1, repeated=Repeated.DROPPED),
    # The type of an acknowledgement is an element: a member may have one for each of its records.
    "ShareFetch": RequestWork(elements_max=_MANY, is_long_poll=True),
    "ShareAcknowledge": RequestWork(elements_max=_MANY),
    "DescribeShareGroupOffsets": RequestWork(elements_max=_SEVERAL, has_long_answer=True),
    "AlterShareGroupOffsets": _SOME_ITEMS,
    "DeleteShareGroupOffsets": _SOME_ITEMS,
    "InitializeShareGroupState": _SOME_ITEMS,
    "ReadShareGroupState": RequestWork(elements_max=_SOME, has_long_answer=True),
    "WriteShareGroupState": RequestWork(elements_max=_SEVERAL),
    "DeleteShareGroupState": _SOME_ITEMS,
    "ReadShareGroupStateSummary": _SOME_ITEMS,
}

WORK: Final[Mapping[str, RequestWork]] = MappingProxyType(
    {
        **_RECORDS,
        **_METADATA,
        **_GROUPS,
        **_TRANSACTIONS,
        **_SECURITY,
        **_ADMIN,
        **_TELEMETRY,
        **_SHARES,
    }
)
"""The work of each API, by Kafka's name."""
