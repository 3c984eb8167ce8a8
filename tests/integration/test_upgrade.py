"""A whole upgrade from each release that the changelog names, under load: both passes, and back.

``test_two_releases.py`` has the short form. Both releases are installed by pip, from wheels.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from quorate.metadata_log.features import (
    LOGIN_PROTECTION,
    NEWEST_INTER_BROKER_PROTOCOL,
    NEWEST_METADATA_VERSION,
    NEWEST_TRANSACTION_VERSION,
)
from quorate_proto.v1 import errors_pb2
from tests.support.forwarded_changes import QUOTAS
from tests.support.installed_wheel import InstalledWheel, install_wheel
from tests.support.kafka_wire import Values
from tests.support.releases.levels import (
    INTER_BROKER_PROTOCOL,
    METADATA_VERSION,
    TRANSACTION_VERSION,
    give_office_to,
    levels,
    lower,
    raise_all,
    refusal,
)
from tests.support.releases.mixed_cluster import MixedCluster, mixed_cluster
from tests.support.releases.table import ONLINE_FROM, Release, extract, release, why_not_here
from tests.support.releases.traffic import Traffic, asked, traffic
from tests.support.waiting import wait_until
from tests.support.whole_cluster import wait_until_whole

NEWEST = {
    INTER_BROKER_PROTOCOL: NEWEST_INTER_BROKER_PROTOCOL,
    METADATA_VERSION: NEWEST_METADATA_VERSION,
    TRANSACTION_VERSION: NEWEST_TRANSACTION_VERSION,
}

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(900)]

LEVEL = "inter.broker.protocol.version"
CONFIG = {
    LEVEL: 1,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": True,
}
QUOTA_OF_AN_ADDRESS: Values = {
    "entries": [
        {
            "entity": [{"entity_type": "ip", "entity_name": "10.0.0.1"}],
            "ops": [{"key": "connection_creation_rate", "value": 5.0, "remove": False}],
        }
    ],
    "validate_only": False,
}
"""What needs ``LOGIN_PROTECTION``."""


@pytest.fixture(params=ONLINE_FROM)
def earlier(request: pytest.FixtureRequest) -> Release:
    one = release(request.param)
    if why := why_not_here(one):
        pytest.skip(why)
    return one


@pytest.fixture
def old(earlier: Release, tmp_path: Path) -> InstalledWheel:
    return install_wheel(tmp_path / "old", extract(earlier, tmp_path / "old" / "source"))


@pytest.fixture
def new(tmp_path: Path) -> InstalledWheel:
    (tmp_path / "new").mkdir()
    return install_wheel(tmp_path / "new")


@pytest.fixture
def cluster(old: InstalledWheel) -> Iterator[MixedCluster]:
    with mixed_cluster(old, brokers=3, voters=3, config=CONFIG) as cluster:
        yield cluster


def test_b4_b6_f6_an_upgrade_under_load_loses_nothing_and_makes_each_change_once(
    cluster: MixedCluster, earlier: Release, old: InstalledWheel, new: InstalledWheel
) -> None:
    before = {INTER_BROKER_PROTOCOL: 1, METADATA_VERSION: earlier.metadata_version}
    with traffic(cluster) as clients:
        clients.go_on()
        assert levels(cluster) == before
        change_voters(cluster, clients, old, new, earlier)
        change_brokers(cluster, clients, old, new, earlier)
        assert levels(cluster) == before, "new software behaves as the old one"
        waits = earlier.metadata_version < LOGIN_PROTECTION
        expected = errors_pb2.UNSUPPORTED_VERSION if waits else errors_pb2.NONE
        assert quota_of_an_address(cluster) == {expected}
        allow_newest_level(cluster, clients, new)
        clients.go_on()
        after = raise_all(cluster)
        clients.go_on()
        assert levels(cluster) == after == NEWEST
        assert quota_of_an_address(cluster) == {errors_pb2.NONE}
        go_down_and_up_again(cluster, clients)
        if earlier.metadata_version < NEWEST_METADATA_VERSION:
            keep_old_software_out(cluster, old, new, earlier)
        clients.go_on()
        clients.end()


def change_voters(
    cluster: MixedCluster,
    clients: Traffic,
    old: InstalledWheel,
    new: InstalledWheel,
    earlier: Release,
) -> None:
    """Voters first, one at a time; the first goes back once."""
    for voter_id in cluster.voter_ids:
        cluster.bounce_voter(voter_id, new)
        clients.go_on()
        assert_new_records_wait(cluster, earlier)
        if voter_id == 1:
            go_back_with_voter(cluster, clients, old, new, earlier)


def go_back_with_voter(
    cluster: MixedCluster,
    clients: Traffic,
    old: InstalledWheel,
    new: InstalledWheel,
    earlier: Release,
) -> None:
    if not earlier.keeps_folders:
        cluster.stop_voter(1)
        cluster.install("quorum", 1, old)
        cluster.restart_voter(1)
        assert "format" in cluster.wait_until_it_ends("quorum", 1)
        cluster.replace_voter(1, old)
    else:
        cluster.bounce_voter(1, old)
    clients.go_on()
    cluster.bounce_voter(1, new)


def change_brokers(
    cluster: MixedCluster,
    clients: Traffic,
    old: InstalledWheel,
    new: InstalledWheel,
    earlier: Release,
) -> None:
    """Then brokers, each at the level that it had; the first goes back once."""
    cluster.bounce_broker(1, new)
    go_back_with_broker(cluster, clients, old, earlier)
    for broker_id in cluster.broker_ids:
        cluster.bounce_broker(broker_id, new)
        for controller_id in cluster.broker_ids:
            give_office_to(cluster, controller_id)
            clients.go_on()
            assert "1 at most" in refusal(cluster, INTER_BROKER_PROTOCOL, 2)
            if broker_id != cluster.broker_ids[-1]:
                assert_new_records_wait(cluster, earlier)


def assert_new_records_wait(cluster: MixedCluster, earlier: Release) -> None:
    """A controller of the earlier release does not know the level, a new one names who does not."""
    known = earlier.metadata_version
    if known < NEWEST_METADATA_VERSION:
        why = refusal(cluster, METADATA_VERSION, NEWEST_METADATA_VERSION)
        assert f"{known} at most" in why or f"up to {known}" in why


def go_back_with_broker(
    cluster: MixedCluster, clients: Traffic, old: InstalledWheel, earlier: Release
) -> None:
    cluster.stop_broker(1)
    cluster.install("broker", 1, old)
    if not earlier.keeps_folders:
        cluster.restart_broker(1, wait=False)
        assert "format" in cluster.wait_until_it_ends("broker", 1)
        cluster.empty_folder("broker", 1)
    cluster.restart_broker(1)
    wait_until_whole(cluster)
    clients.go_on()


def allow_newest_level(cluster: MixedCluster, clients: Traffic, new: InstalledWheel) -> None:
    """The second bounce: some brokers may use the newest level and others may not."""
    for broker_id in cluster.broker_ids:
        assert f"broker {broker_id} (1 at most)" in refusal(cluster, INTER_BROKER_PROTOCOL, 2)
        cluster.bounce_broker(broker_id, new, {LEVEL: NEWEST_INTER_BROKER_PROTOCOL})
        clients.go_on()
        assert levels(cluster)[INTER_BROKER_PROTOCOL] == 1


def go_down_and_up_again(cluster: MixedCluster, clients: Traffic) -> None:
    """The protocol goes back under load, the kinds of record do not."""
    lower(cluster, INTER_BROKER_PROTOCOL, 1)
    clients.go_on()
    assert levels(cluster)[INTER_BROKER_PROTOCOL] == 1
    assert "cannot go back" in refusal(cluster, METADATA_VERSION, 4, allow_downgrade=True)
    raise_all(cluster)
    clients.go_on()


def keep_old_software_out(
    cluster: MixedCluster, old: InstalledWheel, new: InstalledWheel, earlier: Release
) -> None:
    """A broker of the earlier release does not join any more, and its log says why."""
    cluster.stop_broker(3)
    kept = cluster.set_folder_aside("broker", 3)
    cluster.install("broker", 3, old)
    cluster.configure(3, {LEVEL: earlier.inter_broker_protocol})
    cluster.restart_broker(3, wait=False)
    wait_until(
        lambda: any(
            f"writes records of metadata_version {NEWEST_METADATA_VERSION}" in line
            for line in cluster.broker_log(3)
        ),
        "broker 3 to say why it does not join",
    )
    cluster.kill_broker(3)
    cluster.put_folder_back("broker", 3, kept)
    cluster.bounce_broker(3, new, {LEVEL: NEWEST_INTER_BROKER_PROTOCOL})


def quota_of_an_address(cluster: MixedCluster) -> set[int]:
    """Return the codes with which the brokers answer a change that needs metadata_version 6."""
    codes: set[int] = set()
    for broker_id in cluster.broker_ids:
        codes |= set(
            asyncio.run(asked(cluster, broker_id, "address", QUOTAS, 1, QUOTA_OF_AN_ADDRESS))
        )
    return codes
