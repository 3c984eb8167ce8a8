"""The table of Kafka's APIs. Only these APIs are advertised and served.

Each API is declared once, by its number and Kafka's name, with the versions that are served and the
functions that decode, handle and encode it. If no decoder or encoder is named, kio's layout
describes the message, and the handler works with plain dicts. ``api_work`` has the price of each.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from quorate.broker.common.steps import Steps
from quorate.broker.kafka.admin import (
    acl_apis,
    client_quota_apis,
    config_apis,
    config_resources,
    elect_leaders_api,
    feature_apis,
    log_dir_apis,
    membership_apis,
    reassignment_apis,
    scram_apis,
    token_apis,
    topic_apis,
)
from quorate.broker.kafka.api_versions import API_VERSIONS_KEY, handler_for
from quorate.broker.kafka.api_work import WORK
from quorate.broker.kafka.connection import sasl_apis
from quorate.broker.kafka.connection.requests import Api, Begin, Handler
from quorate.broker.kafka.groups import (
    consumer_group_apis,
    find_coordinator_api,
    group_admin_apis,
    group_membership_apis,
    offset_apis,
)
from quorate.broker.kafka.metadata import (
    describe_cluster_api,
    describe_quorum_api,
    describe_topic_partitions_api,
    metadata_api,
)
from quorate.broker.kafka.records import (
    delete_records_api,
    fetch_api,
    fetch_messages,
    list_offsets_apis,
    produce_api,
    produce_messages,
)
from quorate.broker.kafka.services import KafkaServices
from quorate.broker.kafka.share import (
    share_fetch_api,
    share_group_apis,
    share_messages,
    share_offset_apis,
    share_state_apis,
)
from quorate.broker.kafka.telemetry import telemetry_apis
from quorate.broker.kafka.transactions import (
    init_producer_id_api,
    transaction_admin_apis,
    transaction_apis,
)
from quorate.broker.kafka.wire.primitives import Buffers, Cursor


def api_table() -> Mapping[int, Api]:
    """Return the APIs of one broker, by their number."""
    apis = [*_records(), *_metadata(), *_groups(), *_transactions(), *_security(), *_admin()]
    apis += [*_telemetry(), *_shares(), *_share_states()]
    advertised = [*apis, _api_versions(())]
    return {api.key: api for api in [*apis, _api_versions(advertised)]}


# Each row: number, Kafka's name, first and last version, first flexible version, handler.


def _records() -> list[Api]:
    return [
        _api(
            0,
            "Produce",
            (0, 13),
            produce_messages.FIRST_FLEXIBLE_VERSION,
            produce_api.handle,
            decode=produce_messages.decode,
            decode_small=produce_messages.decode_small,
            encode=produce_messages.encode,
            throttle_place=produce_messages.throttle_place,
            begin=produce_api.begin,
            is_pipelined=True,
        ),
        _api(
            1,
            "Fetch",
            (4, 18),
            fetch_messages.FIRST_FLEXIBLE_VERSION,
            fetch_api.FetchApi().handle,
            decode=fetch_messages.decode,
            encode=fetch_messages.encode,
            response_bytes_max=fetch_api.response_bytes_max,
            abandonable=True,
            is_pipelined=True,
            is_eager=True,
        ),
        _api(2, "ListOffsets", (1, 11), 6, list_offsets_apis.list_offsets, abandonable=True),
        _api(21, "DeleteRecords", (0, 2), 2, delete_records_api.delete_records),
        _api(
            23,
            "OffsetForLeaderEpoch",
            (2, 4),
            4,
            list_offsets_apis.offset_for_leader_epoch,
            abandonable=True,
        ),
    ]


def _metadata() -> list[Api]:
    topic_partitions = describe_topic_partitions_api
    return [
        _api(
            3,
            "Metadata",
            (0, 13),
            9,
            metadata_api.MetadataApi().handle,
            encode=metadata_api.encode,
            abandonable=True,
            is_pipelined=True,
        ),
        _api(
            55, "DescribeQuorum", (0, 2), 0, describe_quorum_api.describe_quorum, abandonable=True
        ),
        _api(
            60,
            "DescribeCluster",
            (0, 2),
            0,
            describe_cluster_api.describe_cluster,
            abandonable=True,
        ),
        _api(
            75,
            "DescribeTopicPartitions",
            (0, 0),
            0,
            topic_partitions.describe_topic_partitions,
            abandonable=True,
        ),
    ]


def _groups() -> list[Api]:
    find_coordinator = find_coordinator_api.FindCoordinatorApi().handle
    membership = group_membership_apis
    return [
        _api(8, "OffsetCommit", (2, 10), 8, offset_apis.offset_commit, is_pipelined=True),
        _api(9, "OffsetFetch", (1, 10), 6, offset_apis.offset_fetch, abandonable=True),
        _api(
            10,
            "FindCoordinator",
            (0, 6),
            3,
            find_coordinator,
            abandonable=True,
            is_pipelined=True,
        ),
        _api(11, "JoinGroup", (0, 9), 6, membership.join_group, abandonable=True),
        _api(12, "Heartbeat", (0, 4), 4, membership.heartbeat, is_pipelined=True),
        _api(13, "LeaveGroup", (0, 5), 4, membership.leave_group),
        _api(14, "SyncGroup", (0, 5), 4, membership.sync_group, abandonable=True),
        _api(15, "DescribeGroups", (0, 6), 5, group_admin_apis.describe_groups, abandonable=True),
        _api(16, "ListGroups", (0, 5), 3, group_admin_apis.list_groups, abandonable=True),
        _api(42, "DeleteGroups", (0, 2), 2, group_admin_apis.delete_groups),
        _api(47, "OffsetDelete", (0, 0), 1, offset_apis.offset_delete),
        _api(
            68,
            "ConsumerGroupHeartbeat",
            (0, 1),
            0,
            consumer_group_apis.consumer_group_heartbeat,
            abandonable=True,
        ),
        _api(
            69,
            "ConsumerGroupDescribe",
            (0, 1),
            0,
            consumer_group_apis.consumer_group_describe,
            abandonable=True,
        ),
    ]


def _transactions() -> list[Api]:
    admin = transaction_admin_apis
    return [
        _api(22, "InitProducerId", (0, 5), 2, init_producer_id_api.init_producer_id),
        _api(24, "AddPartitionsToTxn", (0, 5), 3, transaction_apis.add_partitions_to_txn),
        _api(25, "AddOffsetsToTxn", (0, 4), 3, transaction_apis.add_offsets_to_txn),
        _api(26, "EndTxn", (0, 5), 3, transaction_apis.end_txn),
        _api(27, "WriteTxnMarkers", (1, 2), 1, admin.write_txn_markers),
        _api(28, "TxnOffsetCommit", (0, 5), 3, offset_apis.txn_offset_commit),
        _api(61, "DescribeProducers", (0, 0), 0, admin.describe_producers, abandonable=True),
        _api(65, "DescribeTransactions", (0, 0), 0, admin.describe_transactions, abandonable=True),
        _api(66, "ListTransactions", (0, 2), 0, admin.list_transactions, abandonable=True),
    ]


def _security() -> list[Api]:
    scram = scram_apis
    return [
        _api(17, "SaslHandshake", (0, 1), 2, sasl_apis.handshake, abandonable=True),
        _api(29, "DescribeAcls", (1, 3), 2, acl_apis.describe_acls, abandonable=True),
        _api(30, "CreateAcls", (1, 3), 2, acl_apis.create_acls),
        _api(31, "DeleteAcls", (1, 3), 2, acl_apis.delete_acls),
        _api(36, "SaslAuthenticate", (0, 2), 2, sasl_apis.authenticate, abandonable=True),
        _api(38, "CreateDelegationToken", (1, 3), 2, token_apis.create_delegation_token),
        _api(39, "RenewDelegationToken", (1, 3), 2, token_apis.renew_delegation_token),
        _api(40, "ExpireDelegationToken", (1, 3), 2, token_apis.expire_delegation_token),
        _api(
            41,
            "DescribeDelegationToken",
            (1, 3),
            2,
            token_apis.describe_delegation_token,
            abandonable=True,
        ),
        _api(
            50,
            "DescribeUserScramCredentials",
            (0, 0),
            0,
            scram.describe_user_scram_credentials,
            abandonable=True,
        ),
        _api(51, "AlterUserScramCredentials", (0, 0), 0, scram.alter_user_scram_credentials),
    ]


def _admin() -> list[Api]:
    moves = reassignment_apis
    return [
        _api(
            19,
            "CreateTopics",
            (2, 7),
            5,
            topic_apis.create_topics,
            refused_over_quota_from=topic_apis.FIRST_CREATION_REFUSED_OVER_QUOTA,
        ),
        _api(
            20,
            "DeleteTopics",
            (1, 6),
            4,
            topic_apis.delete_topics,
            refused_over_quota_from=topic_apis.FIRST_DELETION_REFUSED_OVER_QUOTA,
        ),
        _api(32, "DescribeConfigs", (1, 4), 4, config_apis.describe_configs, abandonable=True),
        _api(33, "AlterConfigs", (0, 2), 2, config_apis.alter_configs),
        _api(34, "AlterReplicaLogDirs", (1, 2), 2, log_dir_apis.alter_replica_log_dirs),
        _api(35, "DescribeLogDirs", (1, 5), 2, log_dir_apis.describe_log_dirs, abandonable=True),
        _api(
            37,
            "CreatePartitions",
            (0, 3),
            2,
            topic_apis.create_partitions,
            refused_over_quota_from=topic_apis.FIRST_ADDITION_REFUSED_OVER_QUOTA,
        ),
        _api(43, "ElectLeaders", (0, 2), 2, elect_leaders_api.elect_leaders),
        _api(44, "IncrementalAlterConfigs", (0, 2), 1, config_apis.incremental_alter_configs),
        _api(45, "AlterPartitionReassignments", (0, 1), 0, moves.alter_partition_reassignments),
        _api(
            46,
            "ListPartitionReassignments",
            (0, 0),
            0,
            moves.list_partition_reassignments,
            abandonable=True,
        ),
        _api(
            48,
            "DescribeClientQuotas",
            (0, 1),
            1,
            client_quota_apis.describe_client_quotas,
            abandonable=True,
        ),
        _api(49, "AlterClientQuotas", (0, 1), 1, client_quota_apis.alter_client_quotas),
        _api(57, "UpdateFeatures", (0, 2), 0, feature_apis.update_features),
        _api(64, "UnregisterBroker", (0, 0), 0, membership_apis.unregister_broker),
        _api(
            74,
            "ListConfigResources",
            (0, 1),
            0,
            config_resources.list_config_resources,
            abandonable=True,
        ),
        _api(80, "AddRaftVoter", (0, 1), 0, membership_apis.add_raft_voter),
        _api(81, "RemoveRaftVoter", (0, 0), 0, membership_apis.remove_raft_voter),
    ]


def _telemetry() -> list[Api]:
    telemetry = telemetry_apis
    return [
        _api(
            71,
            "GetTelemetrySubscriptions",
            (0, 0),
            0,
            telemetry.get_telemetry_subscriptions,
            is_pipelined=True,
        ),
        _api(72, "PushTelemetry", (0, 0), 0, telemetry.push_telemetry, is_pipelined=True),
    ]


def _shares() -> list[Api]:
    groups, offsets = share_group_apis, share_offset_apis
    heartbeat = groups.ShareGroupHeartbeatApi().handle
    return [
        _api(76, "ShareGroupHeartbeat", (1, 1), 0, heartbeat, abandonable=True),
        _api(77, "ShareGroupDescribe", (1, 1), 0, groups.share_group_describe, abandonable=True),
        _api(
            78,
            "ShareFetch",
            (1, 2),
            share_messages.FIRST_FLEXIBLE_VERSION,
            share_fetch_api.share_fetch,
            decode=share_messages.decode_fetch,
            encode=share_messages.encode_fetch,
            response_bytes_max=share_fetch_api.response_bytes_max,
            abandonable=True,
        ),
        _api(
            79,
            "ShareAcknowledge",
            (1, 2),
            share_messages.FIRST_FLEXIBLE_VERSION,
            share_fetch_api.share_acknowledge,
            decode=share_messages.decode_acknowledge,
        ),
        _api(
            90,
            "DescribeShareGroupOffsets",
            (0, 1),
            0,
            offsets.describe_share_group_offsets,
            abandonable=True,
        ),
        _api(91, "AlterShareGroupOffsets", (0, 0), 0, offsets.AlterShareGroupOffsetsApi().handle),
        _api(92, "DeleteShareGroupOffsets", (0, 0), 0, offsets.delete_share_group_offsets),
    ]


def _share_states() -> list[Api]:
    states = share_state_apis
    return [
        _api(83, "InitializeShareGroupState", (0, 0), 0, states.initialize),
        _api(84, "ReadShareGroupState", (0, 0), 0, states.read),
        _api(85, "WriteShareGroupState", (0, 1), 0, states.write),
        _api(86, "DeleteShareGroupState", (0, 0), 0, states.delete),
        _api(87, "ReadShareGroupStateSummary", (0, 1), 0, states.summarize, abandonable=True),
    ]


def _api_versions(advertised: Iterable[Api]) -> Api:
    return _api(
        API_VERSIONS_KEY,
        "ApiVersions",
        (0, 4),
        3,
        handler_for(advertised),
        abandonable=True,
        is_pipelined=True,
    )


def _api(
    key: int,
    kafka_name: str,
    versions: tuple[int, int],
    first_flexible_version: int,
    handle: Handler,
    *,
    decode: Callable[[int, Cursor], Steps[Any]] | None = None,
    decode_small: Callable[[int, Cursor], Any | None] | None = None,
    encode: Callable[[int, Any], Steps[Buffers]] | None = None,
    response_bytes_max: Callable[[KafkaServices, Any], int] | None = None,
    throttle_place: Callable[[int], int | None] | None = None,
    abandonable: bool = False,
    begin: Begin | None = None,
    is_pipelined: bool = False,
    is_eager: bool = False,
    refused_over_quota_from: int = 0,
) -> Api:
    """Declare one API. ``versions`` are the first and the last version that are served."""
    min_version, max_version = versions
    api = Api(
        key=key,
        min_version=min_version,
        max_version=max_version,
        first_flexible_version=first_flexible_version,
        handle=handle,
        work=WORK[kafka_name],
        decode=decode,
        decode_small=decode_small,
        encode=encode,
        response_bytes_max=response_bytes_max,
        throttle_place=throttle_place,
        abandonable=abandonable,
        begin=begin,
        is_pipelined=is_pipelined,
        is_eager=is_eager,
        refused_over_quota_from=refused_over_quota_from,
    )
    assert api.name.replace("_", "") == kafka_name.lower(), f"API {key} is {api.name}"
    return api
