"""The APIs AlterReplicaLogDirs (34) and DescribeLogDirs (35), about the log folders of a broker
(KIP-113)."""

import asyncio
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

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
    """Begin to move replicas into other folders of this broker (KIP-113)."""
    allowed = services.authorizer.rights_of(context).may_cluster(AclOperation.ALTER)
    asked = [
        (TopicPartition(topic["name"], number), Path(wanted["path"]))
        for wanted in request["dirs"]
        for topic in wanted["topics"]
        for number in topic["partitions"]
    ]
    by_topic: dict[str, list[Message]] = {}
    async for tp, folder in services.turns.through(asked):
        code: int = errors_pb2.CLUSTER_AUTHORIZATION_FAILED
        if allowed:
            code = await services.replicas.move_replica(tp, folder)
        by_topic.setdefault(tp.topic, []).append(
            {"partition_index": tp.partition, "error_code": code}
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
    wanted = _wanted(request["topics"])
    found = services.replicas.log_sizes(wanted)
    sizes = [one async for one in services.turns.through(tuple(found) if wanted is None else found)]
    await AnswerPrice(services, context).add(len(sizes))
    by_folder: dict[Path, list[LogSize]] = {}
    async for size in services.turns.through(sizes):
        by_folder.setdefault(size.directory, []).append(size)
    # Kafka takes a folder with such trouble offline. This broker continues to serve what it can.
    # The error code makes tools notice the trouble, and the answer has the sizes all the same.
    troubled = await services.turns.carry_out(services.replicas.troubled_directories())
    results = [
        await _described(
            services, folder, by_folder.get(folder, ()), is_troubled=folder in troubled
        )
        for folder in services.replicas.directories()
    ]
    values = {"throttle_time": 0, "error_code": errors_pb2.NONE, "results": results}
    return values


async def _described(
    services: KafkaServices, folder: Path, sizes: Sequence[LogSize], *, is_troubled: bool
) -> Message:
    """Return what a folder holds, and the size of its disk."""
    code = errors_pb2.KAFKA_STORAGE_ERROR if is_troubled else errors_pb2.NONE
    total_bytes, usable_bytes = _UNKNOWN, _UNKNOWN
    try:
        usage = await asyncio.to_thread(shutil.disk_usage, folder)
        total_bytes, usable_bytes = usage.total, usage.free
    except OSError:
        code = errors_pb2.KAFKA_STORAGE_ERROR
    return {
        "error_code": code,
        "log_dir": str(folder),
        "topics": await _topics(services, sizes),
        "total_bytes": total_bytes,
        "usable_bytes": usable_bytes,
        "is_cordoned": False,
    }


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
                "is_future_key": size.is_future,
            }
        )
    return [{"name": name, "partitions": found} for name, found in sorted(by_topic.items())]
