"""The console of a real cluster: every page, every action, and what a person without rights gets.

One cluster of two brokers serves all tests of this module. The console that is asked is that of
broker 1, so what broker 2 has comes through the requests between brokers.
"""

import json
from collections.abc import Iterator
from typing import Final

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from quorate.broker.console.actions.table import ACTIONS
from quorate.client.results import AclBinding, NewTopic, ScramUpsertion
from quorate.common.acl_types import AclOperation, ResourceType
from quorate.testing.running import RunningCluster, running_cluster
from tests.support.console import Answer, Browser, Document
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

PASSWORD: Final = "a password"
ROOT, ALICE, NOBODY = "root", "alice", "nobody"
SECRET, OPEN = "secret-plans", "open-orders"
SECRET_VALUE: Final = "meet at dawn"
HOSTILE: Final = "<script>alert(1)</script><img src=x onerror=alert(2)>'\"&"
WAIT_S: Final = 20.0
PATHS: Final = (
    "/",
    "/brokers",
    "/brokers/1",
    "/brokers/2",
    "/topics",
    "/topics?internal=1&sort=in",
    f"/topics/{SECRET}",
    f"/topics/{SECRET}/records?partition=0&from=oldest",
    f"/topics/{SECRET}/records?partition=1&from=oldest",
    f"/topics/{SECRET}/configs",
    "/groups",
    "/groups/%3Cscript%3Ealert(1)%3C%2Fscript%3E%3Cimg%20src%3Dx%20onerror%3Dalert(2)%3E%27%22%26",
    "/transactions",
    "/configs",
    "/configs?kind=broker&name=2",
    "/configs?kind=topic&name=secret-plans",
    f"/topics/{SECRET}/replicas?broker-1=1&broker-2=1&factor=2",
    "/quotas",
    "/users",
    "/acls",
    "/quorum",
    "/metadata",
    "/metadata/tree?path=/brokers/topics",
    "/audit",
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with running_cluster(
        brokers=2,
        has_console=True,
        config={
            "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:CN=admin;User:{ROOT}",
            "grpc.security.protocol": "SSL",
            "grpc.ssl.client.auth": "required",
            "connection.failed.authentication.delay.ms": 0,
            "offsets.topic.num.partitions": 2,
            "offsets.topic.replication.factor": 1,
        },
    ) as running:
        _fill(running)
        yield running


def _fill(running: RunningCluster) -> None:
    with running.admin() as admin:
        users = [
            ScramUpsertion.of_password(one, "SCRAM-SHA-256", PASSWORD)
            for one in (ROOT, ALICE, NOBODY)
        ]
        for result in admin.alter_user_scram_credentials(users):
            result.raise_for_error()
        may_read = [
            _binding(ResourceType.TOPIC, OPEN, ALICE, operation)
            for operation in (AclOperation.READ, AclOperation.DESCRIBE)
        ]
        admin.create_acls(
            [*may_read, _binding(ResourceType.GROUP, HOSTILE, HOSTILE, AclOperation.READ)]
        )
        topics = [NewTopic(name=one, assignments=[[1], [2]]) for one in (SECRET, OPEN)]
        for created in admin.create_topics(topics):
            created.raise_for_error()
    settings = {
        "bootstrap.servers": running.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": ROOT,
        "sasl.password": PASSWORD,
    }
    producer = Producer(settings)
    for partition in (0, 1):
        for topic in (SECRET, OPEN):
            value = HOSTILE + SECRET_VALUE
            producer.produce(topic, value, HOSTILE, partition, headers={"trace": HOSTILE})
    assert producer.flush(WAIT_S) == 0
    consumer = Consumer({**settings, "group.id": HOSTILE, "client.id": HOSTILE})
    consumer.commit(offsets=[TopicPartition(SECRET, 1, 1)], asynchronous=False)
    consumer.close()


def _binding(kind: ResourceType, name: str, user: str, operation: AclOperation) -> AclBinding:
    return AclBinding(
        resource_type=kind, resource_name=name, principal=f"User:{user}", operation=operation
    )


def _browser(running: RunningCluster, user: str) -> Browser:
    return Browser(running.console_url(1), user, PASSWORD)


def _made(answer: Answer) -> str:
    """The result of an action that must have been carried out."""
    assert answer.status == 200, answer.text
    assert "refused" not in answer.text, answer.text
    return answer.text


def test_every_page_is_shown_and_nothing_that_others_chose_becomes_markup(
    cluster: RunningCluster,
) -> None:
    root = _browser(cluster, ROOT)
    for path in PATHS:
        document = root.page(path)
        kinds = {one.tag for one in document.elements}
        assert "img" not in kinds, path
        scripts = [one.attributes["src"] for one in document.of("script")]
        assert len(scripts) == 1, path
        assert scripts[0].startswith("/assets/"), path
        assert not [
            name
            for one in document.elements
            for name in one.attributes
            if name.startswith("on") or name == "style"
        ], path
        assert "does not answer" not in document.markup, path
    records = root.page(f"/topics/{SECRET}/records?partition=1&from=oldest")
    assert any(SECRET_VALUE in one.text for one in records.of("pre"))
    assert any(HOSTILE in one.text for one in records.of("dd")), "its header"


def test_changes_are_carried_out_and_bear_the_name_of_the_person(cluster: RunningCluster) -> None:
    root = _browser(cluster, ROOT)
    _made(
        root.send(
            "create-topic",
            name="made-here",
            partitions=2,
            replication=2,
            configs="retention.ms=60000",
        )
    )
    assert "has 3 partitions" in _made(root.send("add-partitions", topic="made-here", count=3))
    _made(
        root.send(
            "alter-config",
            kind="topic",
            name="made-here",
            key="retention.ms",
            operation="set",
            value="90000",
        )
    )
    assert "90000" in root.page("/topics/made-here/configs").markup
    written = _made(
        root.send("produce", topic="made-here", partition=1, key="k", value="v", headers="a=b")
    )
    assert "written at offset 0" in written
    assert any(
        one.text == "v" for one in root.page("/topics/made-here/records?partition=1").of("pre")
    )
    _made(root.send("elect-leaders", topic="made-here", election=0))
    _made(
        root.send(
            "create-acl",
            principal="User:bob",
            permission=3,
            operation=3,
            resource_type=2,
            resource_name="made-here",
            pattern_type=3,
            host="*",
        )
    )
    assert "User:bob" in root.page("/acls?principal=User:bob").markup
    assert root.send("delete-topic", topic="made-here", confirmed="other").status == 400
    _made(root.send("delete-topic", topic="made-here", confirmed="made-here"))
    # A broker begins its file with the first change that it carries out.
    logs = [cluster.folder / f"broker-{broker}" / "audit.log" for broker in (1, 2)]
    lines = [line for one in logs if one.exists() for line in one.read_text().splitlines()]
    trail = [json.loads(line) for line in lines]
    mine = {one["api"] for one in trail if one["principal"] == f"User:{ROOT}"}
    assert {
        "CreateTopics",
        "CreatePartitions",
        "IncrementalAlterConfigs",
        "CreateAcls",
        "DeleteTopics",
    } <= mine
    assert "Console produce" in mine
    assert "CreateTopics" in root.page("/audit?q=made-here").markup
    assert f"User:{ROOT}" in root.page("/metadata?path=/brokers/topics/made-here").markup


def test_replicas_quotas_and_users_are_changed_and_no_password_is_kept(
    cluster: RunningCluster,
) -> None:
    root = _browser(cluster, ROOT)
    _made(root.send("create-topic", name="to-move", partitions=2, replication=1))
    plan = "0: 1,2\n1: 2,1"
    moved = root.send("move-replicas", topic="to-move", plan=plan + "\n9: 1")
    assert "2 partitions of to-move" in moved.text
    assert "to-move-9" in moved.text, "what is refused has a line of its own"
    wait_until(
        lambda: root.page("/topics/to-move").markup.count('<span class="id">') == 8,
        "both replicas of both partitions in sync, and none on the move",
        timeout_s=WAIT_S,
    )
    assert "No partition is being moved" in root.page("/topics/to-move/replicas").markup
    assert "no partition of to-move" in root.send("cancel-moves", topic="to-move").text
    quota = {"user": "carol", "default_client_id": 1, "key": "producer_byte_rate"}
    _made(root.send("set-quota", value="2.5e6", **quota))
    wait_until(
        lambda: "user carol, the default client-id" in root.page("/quotas").markup,
        "the broker of the console knows of the quota",
        timeout_s=WAIT_S,
    )
    _made(root.send("remove-quota", **quota))
    wait_until(
        lambda: "user carol" not in root.page("/quotas").markup,
        "the broker of the console knows that the quota is gone",
        timeout_s=WAIT_S,
    )
    first, second = "correct horse", "battery staple"
    _made(root.send("create-user", user="carol", password=first, again=first, iterations=4096))
    _made(root.send("change-password", user="carol", password=second, again=second))
    url = cluster.console_url(1)
    wait_until(lambda: Browser(url, "carol", second).get("/").status == 200, "carol logs in")
    assert Browser(url, "carol", first).get("/").status == 401
    _made(root.send("delete-user", user="carol", confirmed="carol"))
    kept = b"".join(one.read_bytes() for one in cluster.folder.rglob("*.log") if one.is_file())
    assert b"AlterUserScramCredentials" in kept, "the audit log"
    assert first.encode() not in kept
    assert second.encode() not in kept


def test_a_move_shows_how_far_it_is_and_can_be_cancelled(cluster: RunningCluster) -> None:
    root = _browser(cluster, ROOT)
    throttle = "follower.replication.throttled.rate"
    config = {"kind": "broker", "name": "2", "key": throttle, "value": "1"}
    _made(root.send("alter-config", operation="set", **config))
    replicas = "follower.replication.throttled.replicas=*"
    _made(root.send("create-topic", name="slow", partitions=1, replication=2, configs=replicas))
    _made(root.send("move-replicas", topic="slow", plan="0: 1"))
    wait_until(lambda: _is_alone(root), "one replica, on broker 1", timeout_s=WAIT_S)
    # More than replica.fetch.response.max.bytes: what is over it waits for the throttle.
    for _ in range(8):
        _made(root.send("produce", topic="slow", partition=0, key="k", value="v" * 450_000))
    _made(root.send("move-replicas", topic="slow", plan="0: 1,2"))
    replicas_page = "/topics/slow/replicas"
    wait_until(
        lambda: "broker 2" in root.page(replicas_page).markup, "one byte/s", timeout_s=WAIT_S
    )
    _made(root.send("cancel-moves", topic="slow"))
    wait_until(lambda: _is_alone(root), "the old replica alone", timeout_s=WAIT_S)
    assert "No partition is being moved" in root.page(replicas_page).markup
    _made(root.send("alter-config", operation="delete", **config))


def _is_alone(root: Browser) -> bool:
    """Whether one replica is assigned, and in sync."""
    return root.page("/topics/slow").markup.count('class="id') == 2


FORBIDDEN: Final[dict[str, dict[str, object]]] = {
    "create-topic": {"name": "mine", "partitions": 1, "replication": 1},
    "delete-topic": {"topic": OPEN, "confirmed": OPEN},
    "add-partitions": {"topic": OPEN, "count": 9},
    "elect-leaders": {"topic": OPEN, "election": 1},
    "alter-config": {
        "kind": "topic",
        "name": OPEN,
        "key": "retention.ms",
        "operation": "set",
        "value": "1",
    },
    "create-acl": {
        "principal": f"User:{ALICE}",
        "permission": 3,
        "operation": 2,
        "resource_type": 2,
        "resource_name": "*",
        "pattern_type": 3,
        "host": "*",
    },
    "delete-acl": {
        "principal": f"User:{ALICE}",
        "permission": 3,
        "operation": 3,
        "resource_type": 2,
        "resource_name": OPEN,
        "pattern_type": 3,
        "host": "*",
    },
    "move-replicas": {"topic": OPEN, "plan": "0: 2"},
    "cancel-moves": {"topic": OPEN, "partition": 0},
    "set-quota": {"user": ALICE, "key": "producer_byte_rate", "value": "1e9"},
    "remove-quota": {"user": ALICE, "key": "producer_byte_rate"},
    "create-user": {"user": "eve", "password": "x", "again": "x", "iterations": 4096},
    "change-password": {"user": ROOT, "password": "x", "again": "x"},
    "delete-user": {"user": ROOT, "confirmed": ROOT},
    "produce": {"topic": OPEN, "partition": 1, "value": "x"},
    "reset-offsets": {"group": "g", "topic": OPEN, "to": "earliest"},
    "delete-group": {"group": "g", "confirmed": "g"},
}
"""Every action, with what a reader of one topic must not do."""


@pytest.mark.parametrize("user", [ALICE, NOBODY])
def test_a_person_without_rights_gets_no_more_than_a_kafka_client(
    cluster: RunningCluster, user: str
) -> None:
    person = _browser(cluster, user)
    for path in PATHS:
        answer = person.get(path)
        shown = Document(answer.text)
        assert SECRET_VALUE not in answer.text, path
        named = [
            one.text
            for one in shown.elements
            if SECRET in one.text and one.tag not in ("title", "h1", "p", "span")
        ]
        assert not named, path
        assert "meter-fill" not in answer.text, (path, "the disk of a broker")
    sees_open = OPEN in person.page("/topics").markup
    assert sees_open == (user == ALICE)
    assert person.get(f"/topics/{SECRET}").status == 404
    for action, fields in FORBIDDEN.items():
        answer = person.send(action, **fields)
        assert answer.status == 400, (action, answer.text)
        assert "AUTHORIZATION_FAILED" in answer.text or "not allowed" in answer.text, (
            action,
            answer.text,
        )
    root = _browser(cluster, ROOT)
    assert "mine" not in root.page("/topics").markup
    assert OPEN in root.page("/topics").markup


def test_every_action_is_forbidden_to_somebody() -> None:
    assert set(FORBIDDEN) == {one.name for one in ACTIONS}


def test_a_reader_reads_what_its_rights_allow(cluster: RunningCluster) -> None:
    records = _browser(cluster, ALICE).page(f"/topics/{OPEN}/records?partition=1&from=oldest")
    assert any(SECRET_VALUE in one.text for one in records.of("pre"))


def test_other_sites_cannot_act_through_a_browser(cluster: RunningCluster) -> None:
    root = _browser(cluster, ROOT)
    topic = {"name": "forged", "partitions": 1, "replication": 1}
    own, alices = (_browser(cluster, user).page("/topics").token for user in (ROOT, ALICE))
    for token, headers in (
        ("", {}),
        (alices, {}),
        (own, {"Origin": "http://evil.example"}),
        (own, {"Sec-Fetch-Site": "cross-site"}),
    ):
        assert root.forge("create-topic", token, headers, **topic).status == 403
    assert root.get("/", Host="evil.example").status == 421
    assert Browser(f"http://{root.host}").get("/").status == 401
    assert "/topics/forged" not in root.page("/topics").links
    policy = root.get("/").headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
