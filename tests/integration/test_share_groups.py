"""Share groups (KIP-932) with real clients and brokers: workers take records, and leaders die."""

import random
from collections.abc import Iterator

import pytest
from confluent_kafka import Message, ShareConsumer

from quorate.testing import RunningCluster, running_cluster
from tests.queues.__main__ import main
from tests.queues.campaign import CONFIG, Campaign, begin_at_the_earliest, create, fill
from tests.support.whole_cluster import wait_until_whole

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with running_cluster(brokers=3, config=CONFIG) as cluster:
        create(cluster, "jobs", 3)
        create(cluster, "released", 1)
        wait_until_whole(cluster)
        yield cluster


def consumer(cluster: RunningCluster, group_id: str) -> ShareConsumer:
    return ShareConsumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": group_id,
            "share.acknowledgement.mode": "explicit",
            "log_level": 0,
        }
    )


def test_kip_932_what_one_worker_does_not_accept_another_gets(cluster: RunningCluster) -> None:
    begin_at_the_earliest(cluster.bootstrap, "two")
    fill(cluster.bootstrap, "released", 10)
    with consumer(cluster, "two") as first:
        first.subscribe(["released"])
        got: list[Message] = []
        while len(got) < 10:
            got += first.poll(timeout=5.0)
        for message in got[:5]:
            first.acknowledge(message)
        first.commit_sync()
    with consumer(cluster, "two") as second:
        second.subscribe(["released"])
        rest: list[Message] = []
        while len(rest) < 5:
            rest += second.poll(timeout=5.0)
    assert {one.offset() for one in rest} == {5, 6, 7, 8, 9}


def test_kip_932_a_killed_leader_loses_no_acknowledgement(cluster: RunningCluster) -> None:
    campaign = Campaign(cluster, "jobs", random.Random(1), lambda _: None)
    ledger = campaign.run(records=1_000, raw=2, workers=1, kills=1)
    assert not ledger.check()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_kip_932_many_kills_lose_no_acknowledgement() -> None:
    assert main(["--kills", "40", "--seed", "1"]) == 0
