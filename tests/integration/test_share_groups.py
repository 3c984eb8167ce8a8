"""Share groups (KIP-932) with real clients and brokers: workers take records, and leaders die."""

import random
from collections.abc import Iterator

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    AcknowledgeType,
    Consumer,
    Message,
    ShareConsumer,
    TopicPartition,
)

from quorate.testing import RunningCluster, running_cluster
from tests.queues.__main__ import main
from tests.queues.campaign import (
    CONFIG,
    Campaign,
    begin_at_the_earliest,
    configure,
    create,
    fill,
)
from tests.support.cli import quorate, quorate_error, quorate_json
from tests.support.whole_cluster import wait_until_whole

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with running_cluster(brokers=3, config=CONFIG) as cluster:
        create(cluster, "jobs", 3)
        create(cluster, "released", 1)
        create(cluster, "administered", 1)
        create(cluster, "dying", 3)
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


def named(verb: str, cluster: RunningCluster) -> tuple[str, ...]:
    """The command about the group of the first test."""
    return "share-groups", verb, "--bootstrap-server", cluster.bootstrap, "--group", "two"


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
        told = quorate_json(*named("describe", cluster))
        (place,) = told["partitions"]
        assert (told["state"], len(told["members"]), told["in_flight"]) == ("stable", 1, 5)
        assert (place["start"], place["lag"]) == (5, 5)
        assert "lag 5, 5 in flight" in quorate(*named("describe", cluster))
        assert "NON_EMPTY_GROUP" in quorate_error(*named("delete", cluster))
    assert {one.offset() for one in rest} == {5, 6, 7, 8, 9}


def test_kip_1191_rejected_records_are_in_the_dead_letter_topic(cluster: RunningCluster) -> None:
    create(cluster, "dlq.dying", 1, **{"errors.deadletterqueue.group.enable": "true"})
    settings = {
        "share.auto.offset.reset": "earliest",
        "errors.deadletterqueue.topic.name": "dlq.dying",
        "errors.deadletterqueue.copy.record.enable": "true",
    }
    configure(cluster.bootstrap, "strict", settings)
    fill(cluster.bootstrap, "dying", 6)
    with consumer(cluster, "strict") as worker:
        worker.subscribe(["dying"])
        got: list[Message] = []
        while len(got) < 6:
            polled = worker.poll(timeout=5.0)
            for message in polled:
                worker.acknowledge(message, AcknowledgeType.REJECT)
            worker.commit_sync()
            got += polled
    letters = _read_all(cluster.bootstrap, "dlq.dying", 6)
    assert sorted(_origin(one) for one in letters) == sorted(
        (one.partition(), one.offset(), one.value()) for one in got
    )
    assert {_said(one, "topic") for one in letters} == {"dying"}
    assert {_said(one, "group") for one in letters} == {"strict"}


def _origin(letter: Message) -> tuple[int, int, bytes | None]:
    return int(_said(letter, "partition")), int(_said(letter, "offset")), letter.value()


def _said(letter: Message, name: str) -> str:
    """Return what a header of a dead letter says."""
    headers = letter.headers()
    assert isinstance(headers, list)
    (data,) = (data for key, data in headers if key == f"__dlq.errors.{name}")
    assert isinstance(data, bytes)
    return data.decode()


def _read_all(bootstrap: str, topic: str, count: int) -> list[Message]:
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "log_level": 0})
    reader.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    try:
        found: list[Message] = []
        while len(found) < count:
            found += reader.consume(count, timeout=5.0)
        return found
    finally:
        reader.close()


def test_kip_932_share_groups_are_administered_by_commands(cluster: RunningCluster) -> None:
    server = ("--bootstrap-server", cluster.bootstrap)
    fill(cluster.bootstrap, "administered", 10)
    group = ("--entity-type", "groups", "--entity-name", "reset")
    earliest = ("--add-config", "share.auto.offset.reset=earliest")
    quorate("configs", "--alter", *group, *earliest, *server)
    assert "share.auto.offset.reset=earliest" in quorate("configs", "--describe", *group, *server)
    of_group = ("share-groups", "reset-offsets", *server, "--group", "reset")
    reset = (*of_group, "--topic", "administered")
    dry = quorate_json(*reset, "--to-latest", "--dry-run")
    assert [move["after"] for move in dry["moves"]] == [10]
    assert "no group" not in quorate(*reset, "--to-offset", "7")
    assert {"group": "reset", "state": "empty"} in quorate_json("share-groups", "list", *server)
    with consumer(cluster, "reset") as worker:
        worker.subscribe(["administered"])
        got: list[Message] = []
        while len(got) < 3:
            got += worker.poll(timeout=5.0)
    assert {one.offset() for one in got} == {7, 8, 9}
    (move,) = quorate_json(*of_group, "--shift-by", "-2")["moves"]
    assert (move["before"], move["after"]) == (7, 5)
    quorate("share-groups", "delete", *server, "--group", "reset")
    assert "GROUP_ID_NOT_FOUND" in quorate_error(
        "share-groups", "describe", *server, "--group", "reset"
    )


def test_kip_932_a_killed_leader_loses_no_acknowledgement(cluster: RunningCluster) -> None:
    campaign = Campaign(cluster, "jobs", random.Random(1), lambda _: None)
    ledger = campaign.run(records=1_000, raw=2, workers=1, kills=1)
    assert not ledger.check()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_kip_932_many_kills_lose_no_acknowledgement() -> None:
    assert main(["--kills", "40", "--seed", "1"]) == 0
