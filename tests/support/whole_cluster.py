"""Waiting until a cluster of real processes has recovered, and saying why it has not."""

from quorate.client.admin import AdminClient
from quorate.client.results import ClusterStatus
from quorate.cluster.client_options import client_options_of
from quorate.testing import RunningCluster
from tests.support.waiting import wait_until

RECOVERY_TIMEOUT_S = 40.0
LOG_LINES = 25
ASK_TIMEOUT_MS = 2_000


def wait_until_whole(cluster: RunningCluster) -> ClusterStatus:
    """Every broker registered, every partition led, and every replica in its ISR.

    Raises:
        AssertionError: not in time; shows the status, the partitions and the ends of the logs.
    """
    wait_until(
        lambda: _is_whole(cluster),
        lambda: f"the cluster to be whole\n{describe(cluster)}",
        timeout_s=RECOVERY_TIMEOUT_S,
    )
    return cluster.status()


def wait_until_known(cluster: RunningCluster, topic: str, partitions: int) -> None:
    """Every broker that runs knows the topic with so many partitions.

    The answer to a change waits for that, but not for long. Kafka clients ask again meanwhile.
    """
    for broker_id in cluster.broker_ids:
        if cluster.broker_pid(broker_id) is not None:
            _wait_until_known_at(cluster, broker_id, topic, partitions)


def _wait_until_known_at(
    cluster: RunningCluster, broker_id: int, topic: str, partitions: int
) -> None:
    address = cluster.broker_grpc_address(broker_id)
    with AdminClient(
        grpc_addresses=[address],
        timeout_ms=ASK_TIMEOUT_MS,
        options=client_options_of(cluster.folder),
    ) as admin:
        wait_until(
            lambda: len(admin.describe_topics([topic])[0].partitions) == partitions,
            f"broker {broker_id} to know {partitions} partitions of {topic}",
        )


def _is_whole(cluster: RunningCluster) -> bool:
    status = cluster.status()
    everybody = len(status.brokers) == len(cluster.broker_ids) and status.controller_id >= 0
    return everybody and not (status.under_replicated_partitions or status.offline_partitions)


def describe(cluster: RunningCluster) -> str:
    """Return all that a person needs to see why a cluster does not recover."""
    lines = [str(cluster.status())]
    with cluster.admin() as admin:
        for topic in admin.describe_topics():
            lines += [
                f"{topic.name} {partition}"
                for partition in topic.partitions
                if len(partition.isr) < len(partition.replicas)
            ]
    for broker_id in cluster.broker_ids:
        lines += [f"--- broker {broker_id}", *cluster.broker_log(broker_id, LOG_LINES)]
    for voter_id in cluster.voter_ids:
        lines += [f"--- voter {voter_id}", *cluster.voter_log(voter_id, LOG_LINES)]
    return "\n".join(lines)
