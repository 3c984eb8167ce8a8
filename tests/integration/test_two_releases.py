"""Two releases at once: voters and brokers of an earlier release beside those of this checkout.

The earlier release is built from its commit. Both run as wheels in environments of their own.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.installed_wheel import InstalledWheel, unpack_wheel
from tests.support.releases.mixed_cluster import MixedCluster, mixed_cluster
from tests.support.releases.table import ONLINE_FROM, Release, extract, release, why_not_here
from tests.support.releases.traffic import traffic
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

LEVEL = "inter.broker.protocol.version"
CONFIG = {
    LEVEL: 1,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": True,
}


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> InstalledWheel:
    return _unpacked(release(ONLINE_FROM[-1]), tmp_path_factory.mktemp("old"))


@pytest.fixture(scope="module")
def new(tmp_path_factory: pytest.TempPathFactory) -> InstalledWheel:
    return unpack_wheel(tmp_path_factory.mktemp("new"))


@pytest.fixture
def small(old: InstalledWheel) -> Iterator[MixedCluster]:
    with mixed_cluster(old, brokers=2, voters=2, config=CONFIG) as cluster:
        yield cluster


def _unpacked(one: Release, folder: Path) -> InstalledWheel:
    if why := why_not_here(one):
        pytest.skip(why)
    return unpack_wheel(folder, extract(one, folder / "source"))


def levels(cluster: MixedCluster) -> dict[str, int]:
    return {feature.name: feature.level for feature in cluster.status().features}


def give_office_to(cluster: MixedCluster, broker_id: int) -> None:
    """Make the broker the controller."""
    with cluster.admin() as admin:
        if admin.cluster_status().controller_id != broker_id:
            admin.move_controller(broker_id)
    wait_until(lambda: cluster.controller_id() == broker_id, f"broker {broker_id} to control")


def refusal(cluster: MixedCluster, feature: str, level: int) -> str:
    """Return why the feature cannot be raised."""
    with cluster.admin() as admin:
        (result,) = admin.update_features({feature: level})
    assert result.error == "FEATURE_UPDATE_FAILED", result
    return result.message


def test_b4_f6_an_old_voter_and_an_old_broker_work_beside_new_ones(
    small: MixedCluster, new: InstalledWheel
) -> None:
    """The short form: half of the first pass, under controllers of both releases."""
    with traffic(small) as clients:
        clients.go_on()
        small.bounce_voter(1, new)
        small.bounce_broker(1, new)
        for controller_id, why in ((2, "knows levels up to 4"), (1, "all voters (4 at most)")):
            give_office_to(small, controller_id)
            clients.go_on()
            assert why in refusal(small, "metadata_version", 6)
        assert levels(small) == {"inter_broker_protocol": 1, "metadata_version": 4}
        clients.end()
