"""The hosts of a local cluster that stands for several: brokers of one host are in one rack.

A host that fails takes all its brokers with it. ``broker.rack`` is what the controller places
replicas by, so the name of the host is the rack: no partition then has two replicas on one host, as
long as there are as many hosts as replicas.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from quorate.broker.config.coordinator import (
    OFFSETS_TOPIC_REPLICATION_FACTOR,
    TRANSACTION_STATE_LOG_REPLICATION_FACTOR,
)
from quorate.broker.config.node import BROKER_RACK
from quorate.broker.config.topics import DEFAULT_REPLICATION_FACTOR
from quorate.cluster.local_cluster_errors import LocalClusterError

_REPLICATION_FACTORS: Final = (
    DEFAULT_REPLICATION_FACTOR,
    OFFSETS_TOPIC_REPLICATION_FACTOR,
    TRANSACTION_STATE_LOG_REPLICATION_FACTOR,
)


def rack_of(position: int, brokers_per_host: int) -> str:
    """Return the rack of the broker at a position among all brokers, from 0 on."""
    return f"host-{position // brokers_per_host + 1}"


def refuse_uneven_hosts(
    brokers: int, brokers_per_host: int, settings: Mapping[str, object]
) -> None:
    """Check that every host has as many brokers as the others, and a rack of its own.

    A smaller host would lead as much per broker and hold more replicas per broker than the others.

    Raises:
        LocalClusterError: the numbers do not fit, or ``settings`` name a rack.
    """
    if BROKER_RACK.name in settings:
        raise LocalClusterError(
            f"--brokers-per-host names a rack for each host: leave --set {BROKER_RACK.name} out"
        )
    fitting = brokers - brokers % brokers_per_host
    if fitting == brokers:
        return
    smaller = f"--brokers {fitting} or " if fitting else ""
    raise LocalClusterError(
        f"{brokers} brokers do not make hosts of {brokers_per_host}: "
        f"give {smaller}--brokers {fitting + brokers_per_host}"
    )


def shared_hosts_warning(
    brokers: int, brokers_per_host: int, settings: Mapping[str, object]
) -> str | None:
    """Return what is to be said where replicas of one partition will share a host, else None."""
    hosts = brokers // brokers_per_host
    factors = {
        key.name: int(str(settings.get(key.name, key.default))) for key in _REPLICATION_FACTORS
    }
    name, factor = max(factors.items(), key=lambda item: item[1])
    replicas = min(factor, brokers)
    if replicas <= hosts:
        return None
    return (
        f"warning: {name} is {factor}, and there {'is' if hosts == 1 else 'are'} {hosts} "
        f"host{'' if hosts == 1 else 's'}: replicas of one partition share a host and fail "
        f"together. --brokers {replicas * brokers_per_host} makes {replicas} hosts"
    )


def brokers_per_host_in(racks: Sequence[object]) -> int | None:
    """Return how many brokers a host has, from the racks of all brokers; None if they have none."""
    return racks.count(racks[0]) if racks and racks[0] else None
