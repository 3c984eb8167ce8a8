"""Feature levels of a cluster, as its administrator sees and changes them."""

from typing import Final

from quorate.metadata_log.image import (
    INTER_BROKER_PROTOCOL,
    METADATA_VERSION,
    TRANSACTION_VERSION,
)
from quorate.testing import RunningCluster
from tests.support.waiting import wait_until

__all__ = ["INTER_BROKER_PROTOCOL", "METADATA_VERSION", "TRANSACTION_VERSION"]

NEWEST: Final = 0
"""Asks for the newest level that all processes understand."""


def levels(cluster: RunningCluster) -> dict[str, int]:
    """Return the level in force of each feature. One at level 0 is not in force."""
    return {feature.name: feature.level for feature in cluster.status().features if feature.level}


def raise_all(cluster: RunningCluster) -> dict[str, int]:
    """Raise each feature as far as all processes understand it, as ``quorate features upgrade``
    does; return the levels.
    """
    with cluster.admin() as admin:
        wanted = [feature.name for feature in admin.cluster_status().features]
        results = admin.update_features(dict.fromkeys(wanted, NEWEST))
    for result in results:
        result.raise_for_error()
    raised = {result.name: result.level for result in results}
    wait_until(lambda: levels(cluster) == raised, f"every broker to know {raised}")
    return raised


def lower(cluster: RunningCluster, feature: str, level: int) -> None:
    """Lower the feature, as ``quorate features downgrade`` does."""
    with cluster.admin() as admin:
        (result,) = admin.update_features({feature: level}, allow_downgrade=True)
    result.raise_for_error()
    wait_until(lambda: levels(cluster)[feature] == level, f"{feature} to be at {level}")


def refusal(
    cluster: RunningCluster, feature: str, level: int, *, allow_downgrade: bool = False
) -> str:
    """Return why the feature cannot be at that level."""
    with cluster.admin() as admin:
        (result,) = admin.update_features({feature: level}, allow_downgrade=allow_downgrade)
    assert result.error == "FEATURE_UPDATE_FAILED", result
    return result.message


def give_office_to(cluster: RunningCluster, broker_id: int) -> None:
    """Make the broker the controller."""
    with cluster.admin() as admin:
        if admin.cluster_status().controller_id != broker_id:
            admin.move_controller(broker_id)
    wait_until(lambda: cluster.controller_id() == broker_id, f"broker {broker_id} to control")
