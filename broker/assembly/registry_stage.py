"""The schema registry of a broker: it leads the topic ``_schemas``, or passes requests on to who
does."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from typing import Final

from quorate.broker.assembly.shared_parts import SharedParts
from quorate.broker.config.registry import SCHEMAS_TOPIC
from quorate.broker.coordinator.shards.coordinator_lease import CoordinatorLease
from quorate.broker.coordinator.shards.leadership_watcher import LeadershipWatcher
from quorate.broker.registry.registry_shard import APPEND_TIMEOUT_MS, RegistryLeader
from quorate.broker.replication.manager import ReplicaManager

SCHEMA_THREADS: Final = 2
"""The threads on which schemas are parsed and compared, which takes milliseconds and more."""


def open_registry(
    shared: SharedParts, replicas: ReplicaManager, cleanup: AsyncExitStack
) -> RegistryLeader:
    """Have this broker serve the registry whenever it leads the topic."""
    threads = ThreadPoolExecutor(SCHEMA_THREADS, thread_name_prefix="schemas")
    cleanup.callback(threads.shutdown, wait=False, cancel_futures=True)
    environment = shared.environment
    leader = RegistryLeader(shared.cache.partition_count, threads)
    lease = CoordinatorLease(shared.identity, environment.now_ms, shared.quorum, shared.images)
    replicas.table.watch_leadership(
        SCHEMAS_TOPIC,
        LeadershipWatcher(
            leader,
            replicas,
            lease,
            environment.wall_clock_ms,
            append_timeout_ms=APPEND_TIMEOUT_MS,
        ),
    )
    cleanup.push_async_callback(leader.close)
    return leader
