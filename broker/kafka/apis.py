"""The one table of APIs: what is here is advertised and answered, everything else is neither."""

from collections.abc import Iterable, Mapping

from broker.kafka import (
    cluster,
    configs,
    elections,
    features,
    fetch,
    groups,
    offsets,
    partitions,
    produce,
    producers,
    reassignments,
    sasl,
    topics,
)
from broker.kafka.api_versions import API_VERSIONS_KEY, handler_for
from broker.kafka.metadata import MetadataApi
from broker.kafka.requests import Api


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
        ),
        Api(
            key=1,
            min_version=4,
            max_version=12,
            first_flexible_version=fetch.FIRST_FLEXIBLE_VERSION,
            decode=fetch.decode,
            handle=fetch.handle,
            answer_bytes_max=fetch.answer_bytes_max,
            abandonable=True,
        ),
        Api(
            key=2,
            min_version=1,
            max_version=6,
            first_flexible_version=6,
            handle=offsets.list_offsets,
        ),
        Api(
            key=3,
            min_version=0,
            max_version=13,
            first_flexible_version=9,
            handle=MetadataApi().handle,
        ),
        Api(
            key=9,
            min_version=1,
            max_version=7,
            first_flexible_version=6,
            handle=groups.offset_fetch,
        ),
        Api(
            key=10,
            min_version=0,
            max_version=4,
            first_flexible_version=3,
            handle=groups.find_coordinator,
        ),
        Api(
            key=17,
            min_version=0,
            max_version=1,
            first_flexible_version=2,
            handle=sasl.handshake,
            abandonable=True,
        ),
        Api(
            key=19,
            min_version=2,
            max_version=7,
            first_flexible_version=5,
            handle=topics.create_topics,
        ),
        Api(
            key=20,
            min_version=1,
            max_version=6,
            first_flexible_version=4,
            handle=topics.delete_topics,
        ),
        Api(
            key=22,
            min_version=0,
            max_version=4,
            first_flexible_version=2,
            handle=producers.init_producer_id,
        ),
        Api(
            key=23,
            min_version=2,
            max_version=4,
            first_flexible_version=4,
            handle=offsets.offset_for_leader_epoch,
        ),
        Api(
            key=32,
            min_version=1,
            max_version=4,
            first_flexible_version=4,
            handle=configs.describe_configs,
        ),
        Api(
            key=33,
            min_version=0,
            max_version=2,
            first_flexible_version=2,
            handle=configs.alter_configs,
        ),
        Api(
            key=36,
            min_version=0,
            max_version=2,
            first_flexible_version=2,
            handle=sasl.authenticate,
            abandonable=True,
        ),
        Api(
            key=37,
            min_version=0,
            max_version=3,
            first_flexible_version=2,
            handle=partitions.create_partitions,
        ),
        Api(
            key=43,
            min_version=0,
            max_version=2,
            first_flexible_version=2,
            handle=elections.elect_leaders,
        ),
        Api(
            key=44,
            min_version=0,
            max_version=1,
            first_flexible_version=1,
            handle=configs.incremental_alter_configs,
        ),
        Api(
            key=45,
            min_version=0,
            max_version=1,
            first_flexible_version=0,
            handle=reassignments.alter_partition_reassignments,
        ),
        Api(
            key=46,
            min_version=0,
            max_version=0,
            first_flexible_version=0,
            handle=reassignments.list_partition_reassignments,
        ),
        Api(
            key=57,
            min_version=0,
            max_version=1,
            first_flexible_version=0,
            handle=features.update_features,
        ),
        Api(
            key=60,
            min_version=0,
            max_version=1,
            first_flexible_version=0,
            handle=cluster.describe_cluster,
        ),
    ]
    advertised = [*apis, _api_versions(())]
    return {api.key: api for api in [*apis, _api_versions(advertised)]}


def _api_versions(advertised: Iterable[Api]) -> Api:
    return Api(
        key=API_VERSIONS_KEY,
        min_version=0,
        max_version=4,
        first_flexible_version=3,
        handle=handler_for(advertised),
    )
