"""The one table of APIs: what is here is advertised and answered, everything else is neither."""

from collections.abc import Iterable, Mapping

from broker.kafka import (
    acls,
    client_quotas,
    cluster,
    config_resources,
    configs,
    elections,
    features,
    fetch,
    fetch_request,
    find_coordinator,
    group_admin,
    group_membership,
    group_offsets,
    log_dirs,
    offsets,
    partitions,
    produce,
    producers,
    quorum,
    reassignments,
    records,
    sasl,
    scram,
    tokens,
    topic_partitions,
    topics,
    transaction_admin,
    transactions,
)
from broker.kafka.api_versions import API_VERSIONS_KEY, handler_for
from broker.kafka.metadata import MetadataApi
from broker.kafka.requests import Api, Handler


def api_table() -> Mapping[int, Api]:
    """API key → API, for one listener."""
    apis = [
        Api(
            key=0,
            min_version=0,
            max_version=10,
            first_flexible_version=produce.FIRST_FLEXIBLE_VERSION,
            decode=produce.decode,
            handle=produce.handle,
            throttle_place=produce.throttle_place,
        ),
        Api(
            key=1,
            min_version=4,
            max_version=12,
            first_flexible_version=fetch_request.FIRST_FLEXIBLE_VERSION,
            decode=fetch_request.decode,
            handle=fetch.FetchApi().handle,
            answer_bytes_max=fetch.answer_bytes_max,
            abandonable=True,
        ),
        # Key, first and last version, first flexible version, handler.
        _api(2, (1, 11), 6, offsets.list_offsets),
        _api(3, (0, 13), 9, MetadataApi().handle),
        _api(8, (2, 8), 8, group_offsets.offset_commit),
        _api(9, (1, 8), 6, group_offsets.offset_fetch),
        _api(10, (0, 4), 3, find_coordinator.FindCoordinatorApi().handle),
        _api(11, (0, 9), 6, group_membership.join_group, abandonable=True),
        _api(12, (0, 4), 4, group_membership.heartbeat),
        _api(13, (0, 5), 4, group_membership.leave_group),
        _api(14, (0, 5), 4, group_membership.sync_group, abandonable=True),
        _api(15, (0, 5), 5, group_admin.describe_groups),
        _api(16, (0, 5), 3, group_admin.list_groups),
        _api(17, (0, 1), 2, sasl.handshake, abandonable=True),
        _api(19, (2, 7), 5, topics.create_topics),
        _api(20, (1, 6), 4, topics.delete_topics),
        _api(21, (0, 2), 2, records.delete_records),
        _api(22, (0, 4), 2, producers.init_producer_id),
        _api(23, (2, 4), 4, offsets.offset_for_leader_epoch),
        _api(24, (0, 3), 3, transactions.add_partitions_to_txn),
        _api(25, (0, 3), 3, transactions.add_offsets_to_txn),
        _api(26, (0, 3), 3, transactions.end_txn),
        _api(27, (1, 1), 1, transaction_admin.write_txn_markers),
        _api(28, (0, 3), 3, group_offsets.txn_offset_commit),
        _api(29, (1, 3), 2, acls.describe_acls),
        _api(30, (1, 3), 2, acls.create_acls),
        _api(31, (1, 3), 2, acls.delete_acls),
        _api(32, (1, 4), 4, configs.describe_configs),
        _api(33, (0, 2), 2, configs.alter_configs),
        _api(34, (1, 2), 2, log_dirs.alter_replica_log_dirs),
        _api(35, (1, 4), 2, log_dirs.describe_log_dirs),
        _api(36, (0, 2), 2, sasl.authenticate, abandonable=True),
        _api(37, (0, 3), 2, partitions.create_partitions),
        _api(38, (1, 3), 2, tokens.create_delegation_token),
        _api(39, (1, 3), 2, tokens.renew_delegation_token),
        _api(40, (1, 3), 2, tokens.expire_delegation_token),
        _api(41, (1, 3), 2, tokens.describe_delegation_token),
        _api(42, (0, 2), 2, group_admin.delete_groups),
        _api(43, (0, 2), 2, elections.elect_leaders),
        _api(44, (0, 2), 1, configs.incremental_alter_configs),
        _api(45, (0, 1), 0, reassignments.alter_partition_reassignments),
        _api(46, (0, 0), 0, reassignments.list_partition_reassignments),
        _api(47, (0, 0), 1, group_offsets.offset_delete),
        _api(48, (0, 1), 1, client_quotas.describe_client_quotas),
        _api(49, (0, 1), 1, client_quotas.alter_client_quotas),
        _api(50, (0, 0), 0, scram.describe_user_scram_credentials),
        _api(51, (0, 0), 0, scram.alter_user_scram_credentials),
        _api(55, (0, 2), 0, quorum.describe_quorum),
        _api(57, (0, 1), 0, features.update_features),
        _api(60, (0, 1), 0, cluster.describe_cluster),
        _api(61, (0, 0), 0, transaction_admin.describe_producers),
        _api(65, (0, 0), 0, transaction_admin.describe_transactions),
        _api(66, (0, 1), 0, transaction_admin.list_transactions),
        _api(74, (0, 1), 0, config_resources.list_config_resources),
        _api(75, (0, 0), 0, topic_partitions.describe_topic_partitions),
    ]
    advertised = [*apis, _api_versions(())]
    return {api.key: api for api in [*apis, _api_versions(advertised)]}


def _api(
    key: int,
    versions: tuple[int, int],
    first_flexible_version: int,
    handle: Handler,
    *,
    abandonable: bool = False,
) -> Api:
    """One that is read and answered by kio's layouts. ``versions``: the first and the last."""
    min_version, max_version = versions
    return Api(
        key=key,
        min_version=min_version,
        max_version=max_version,
        first_flexible_version=first_flexible_version,
        handle=handle,
        abandonable=abandonable,
    )


def _api_versions(advertised: Iterable[Api]) -> Api:
    return _api(API_VERSIONS_KEY, (0, 4), 3, handler_for(advertised))
