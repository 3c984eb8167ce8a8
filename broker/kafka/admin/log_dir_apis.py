"""The APIs AlterReplicaLogDirs (34) and DescribeLogDirs (35), about the one log folder of a
broker."""

import asyncio
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from quorate.broker.config.log import LOG_DIR
from quorate.broker.kafka.connection.answer_price import AnswerPrice
from quorate.broker.kafka.connection.requests import RequestContext
from quorate.broker.kafka.services import KafkaServices
from quorate.broker.kafka.wire.codec import Message
from quorate.broker.replication.api import LogSize
from quorate.common.acl_types import AclOperation
from quorate.common.types import TopicPartition
from quorate_proto.v1 import errors_pb2

_UNKNOWN: Final = -1


async def alter_replica_log_dirs(
    services: KafkaServices, context: RequestContext, request: Message
) -> Message:
    """Answer that a replica is in the requested folder, or that there is no such folder."""
    folder = str(_folder(services))
    allowed = services.authorizer.rights_of(context).may_cluster(AclOperation.ALTER)
    held: set[TopicPartition] = set()
    if allowed:
        every = tuple(services.replicas.log_sizes())
        held = {size.tp async for size in services.turns.through(every)}
    by_topic: dict[str, list[Message]] = {}
    for wanted in request["dirs"]:
        for topic in wanted["topics"]:
            for number in topic["partitions"]:
                code = errors_pb2.NONE
                if not allowed:
                    code = errors_pb2.CLUSTER_AUTHORIZATION_FAILED
                elif wanted["path"] != folder:
                    code = errors_pb2.LOG_DIR_NOT_FOUND
                elif TopicPartition(topic["name"], number) not in held:
                    code = errors_pb2.REPLICA_NOT_AVAILABLE
                by_topic.setdefault(topic["name"], []).append(
                    {"partition_index": number, "error_code": code}
                )
    results = [{"topic_name": name, "partitions": found} for name, found in by_topic.items()]
    values = {"throttle_time": 0, "results": results}
    return values


async def describe_log_dirs(
    services: KafkaServices, context: RequestContext, request: Message
) -> Message:
    if not services.authorizer.rights_of(context).may_cluster(AclOperation.DESCRIBE):
        refused = {
            "throttle_time": 0,
            "error_code": errors_pb2.CLUSTER_AUTHORIZATION_FAILED,
            "results": [],
        }
        return refused
    # Kafka takes a folder with such trouble offline. This broker continues to serve what it can.
    # The error code makes tools notice the trouble, and the answer has the sizes all the same.
    troubled = services.replicas.storage_is_troubled()
    code = errors_pb2.KAFKA_STORAGE_ERROR if troubled else errors_pb2.NONE
    folder = _folder(services)
    wanted = _wanted(request["topics"])
    found = services.replicas.log_sizes(wanted)
    sizes = [one async for one in services.turns.through(tuple(found) if wanted is None else found)]
    await AnswerPrice(services, context).add(len(sizes))
    total_bytes, usable_bytes = _UNKNOWN, _UNKNOWN
    try:
        usage = await asyncio.to_thread(shutil.disk_usage, folder)
        total_bytes, usable_bytes = usage.total, usage.free
    except OSError:
        code = errors_pb2.KAFKA_STORAGE_ERROR
    result = {
        "error_code": code,
        "log_dir": str(folder),
        "topics": await _topics(services, sizes),
        "total_bytes": total_bytes,
        "usable_bytes": usable_bytes,
        "is_cordoned": False,
    }
    values = {"throttle_time": 0, "error_code": errors_pb2.NONE, "results": [result]}
    return values


def _folder(services: KafkaServices) -> Path:
    return Path(services.config[LOG_DIR]).absolute()


def _wanted(topics: Iterable[Message] | None) -> list[TopicPartition] | None:
    """Return the requested partitions, each once, or None if all are requested."""
    if topics is None:
        return None
    named = (TopicPartition(topic["topic"], one) for topic in topics for one in topic["partitions"])
    return list(dict.fromkeys(named))


async def _topics(services: KafkaServices, sizes: Iterable[LogSize]) -> list[Message]:
    by_topic: dict[str, list[Message]] = {}
    async for size in services.turns.through(sizes):
        by_topic.setdefault(size.tp.topic, []).append(
            {
                "partition_index": size.tp.partition,
                "partition_size": size.size_bytes,
                "offset_lag": size.offset_lag,
                "is_future_key": False,
            }
        )
    return [{"name": name, "partitions": found} for name, found in sorted(by_topic.items())]
