"""What pages show of topics, groups, configurations, changes and the audit trail."""

import json

from quorate.broker.console.health.topic_health import (
    BrokerShare,
    TopicHealth,
    broker_shares,
    summed,
    topic_health,
)
from quorate.broker.console.pages.parts import page_of
from quorate.broker.console.views.audit_view import audit_rows, matching
from quorate.broker.console.views.change_rows import ChangeRow, at_or_below, field_changes
from quorate.broker.console.views.config_view import config_rows
from quorate.broker.console.views.group_view import (
    classic_assignment,
    classic_group,
    committed_of,
    lag_of,
    partition_rows,
)
from quorate.broker.console.views.quorum_view import quorum_health, quorum_view
from quorate.broker.console.views.topic_list import arranged, chosen
from quorate.common.types import (
    NO_BROKER,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    MetadataOffset,
    TopicId,
    TopicPartition,
)
from quorate.metadata_log.image import Image
from quorate.metadata_log.partitions import Partition, Topic


def partition(
    *replicas: int, isr: tuple[int, ...] | None = None, leader: int | None = None
) -> Partition:
    members = tuple(map(BrokerId, replicas if isr is None else isr))
    return Partition(
        replicas=tuple(map(BrokerId, replicas)),
        leader=BrokerId(members[0] if leader is None else leader),
        leader_epoch=LeaderEpoch(0),
        isr=members,
        controller_id=BrokerId(1),
        controller_epoch=ControllerEpoch(1),
    )


def topic(name: str, *partitions: Partition) -> Topic:
    return Topic(name, TopicId(bytes(16)), partitions, MetadataOffset(1))


def test_the_health_of_a_topic_names_its_partitions() -> None:
    made = topic(
        "t",
        partition(1, 2, 3),
        partition(1, 2, 3, isr=(2,)),
        partition(1, 2, isr=(1, 2), leader=NO_BROKER),
    )
    health = topic_health(Image(), made, 2)
    assert health.partitions == 3
    assert health.replicas == 8
    assert (health.offline, health.under_replicated) == ((2,), (1,))
    assert health.under_min_isr_count == 1
    assert health.not_preferred == 1
    assert not health.is_sound
    total = summed([health, TopicHealth(partitions=4)])
    assert (total.topics, total.partitions, total.offline) == (2, 7, 1)


def test_the_share_of_each_broker() -> None:
    shares: dict[BrokerId, BrokerShare] = {}
    broker_shares(topic("t", partition(1, 2), partition(2, 1, isr=(2,))), shares)
    assert shares[BrokerId(1)] == BrokerShare(leaders=1, replicas=2, out_of_sync=1)
    assert shares[BrokerId(2)] == BrokerShare(leaders=1, replicas=2, out_of_sync=0)


SOUND, ILL = TopicHealth(partitions=3), TopicHealth(partitions=9, offline_count=1)
TOPICS = {"orders": SOUND, "bad-orders": ILL, "__consumer_offsets": SOUND}


def test_topics_are_chosen_by_name_and_state() -> None:
    assert set(chosen(TOPICS, "", "", internal=False)) == {"orders", "bad-orders"}
    assert set(chosen(TOPICS, "ORD", "trouble", internal=True)) == {"bad-orders"}
    assert set(chosen(TOPICS, "", "no such word", internal=True)) == set(TOPICS)


def test_an_internal_topic_in_trouble_is_shown_all_the_same() -> None:
    assert "__consumer_offsets" in chosen({"__consumer_offsets": ILL}, "", "", internal=False)


def test_topics_are_sorted() -> None:
    rows = arranged(TOPICS, {"orders": 5.0}, {}, "in")
    assert [one.name for one in rows] == ["orders", "__consumer_offsets", "bad-orders"]
    assert arranged(TOPICS, {}, {}, "partitions")[0].name == "bad-orders"
    assert [one.name for one in arranged(TOPICS, {}, {}, "name")] == sorted(TOPICS)


def test_a_page_that_does_not_exist_is_the_nearest() -> None:
    rows = range(120)
    assert page_of(rows, "2") == (2, slice(50, 100))
    assert page_of(rows, "99") == (3, slice(100, 150))
    assert page_of(rows, "-1") == (1, slice(0, 50))
    assert page_of(rows, "٣") == (1, slice(0, 50))
    assert page_of([], "1") == (1, slice(0, 50))


def _assignment(*partitions: int) -> bytes:
    data = b"\0\0" + (1).to_bytes(4, "big") + b"\0\1t" + len(partitions).to_bytes(4, "big")
    return data + b"".join(one.to_bytes(4, "big") for one in partitions) + b"\xff\xff\xff\xff"


def test_an_assignment_that_is_none_is_empty() -> None:
    assert classic_assignment(_assignment(0, 2)) == [TopicPartition("t", 0), TopicPartition("t", 2)]
    for bad in (b"", b"\0", b"\xff" * 20, _assignment(0)[:-5], b"\0\0\x7f\xff\xff\xff\0\0"):
        assert classic_assignment(bad) == []


def test_a_group_shows_who_reads_what_and_how_far_behind_it_is() -> None:
    group = classic_group(
        {
            "group_id": "g",
            "group_state": "Stable",
            "protocol_data": "range",
            "members": [
                {
                    "member_id": "m",
                    "client_id": "c",
                    "client_host": "/h",
                    "group_instance_id": None,
                    "member_assignment": memoryview(_assignment(0, 1)),
                }
            ],
        }
    )
    committed = committed_of(
        {
            "groups": [
                {
                    "topics": [
                        {
                            "name": "t",
                            "partitions": [
                                {"partition_index": 0, "committed_offset": 5, "error_code": 0},
                                {"partition_index": 7, "committed_offset": 1, "error_code": 0},
                                {"partition_index": 8, "committed_offset": -1, "error_code": 0},
                            ],
                        }
                    ]
                }
            ]
        }
    )
    ends = {TopicPartition("t", 0): 25, TopicPartition("t", 7): 2}
    rows = partition_rows(group, committed, ends)
    assert [(one.tp.partition, one.lag, one.member) for one in rows] == [
        (0, 20, "c"),
        (7, 1, ""),
        (1, None, "c"),
    ]
    assert lag_of(rows) == 21


def test_a_configuration_shows_what_it_overrides_and_hides_secrets() -> None:
    def key(
        name: str, value: str, source: int, *layers: tuple[int, str], secret: bool = False
    ) -> dict[str, object]:
        return {
            "name": name,
            "value": value,
            "read_only": False,
            "config_source": source,
            "is_sensitive": secret,
            "synonyms": [{"name": name, "value": of, "source": place} for place, of in layers],
            "documentation": None,
        }

    rows = config_rows(
        [
            key("a.default", "1", 5, (5, "1")),
            key("z.own", "9", 1, (1, "9"), (4, "7"), (5, "1")),
            key("password", "hunter2", 4, (4, "hunter2"), (5, "x"), secret=True),
        ],
        own_source=1,
    )
    assert [one.name for one in rows] == ["password", "z.own", "a.default"]
    assert rows[1].is_set
    assert [(one.source, one.value) for one in rows[1].overrides] == [
        ("configuration file", "7"),
        ("default", "1"),
    ]
    assert "hunter2" not in str(rows)


def change(key: str, old: object = None, new: object = None) -> ChangeRow:
    def shown(value: object) -> str:
        return "" if value is None else json.dumps(value)

    return ChangeRow(1, 0, key, "isr_change", shown(old), shown(new), "broker 1", "", "", "")


def test_a_change_shows_the_fields_that_differ() -> None:
    made = change(
        "/x", {"isr": [1], "version": 1, "same": 2}, {"isr": [1, 2], "version": 2, "same": 2}
    )
    assert [(one.name, one.old, one.new) for one in field_changes(made)] == [
        ("isr", "[1]", "[1, 2]")
    ]
    created = change("/x", None, {"a": 1})
    assert [(one.name, one.old, one.new) for one in field_changes(created)] == [
        ("", "", '{"a": 1}')
    ]
    only_version = change("/x", {"version": 1}, {"version": 2})
    assert [one.name for one in field_changes(only_version)] == ["version"]


def test_changes_below_a_path_are_not_those_beside_it() -> None:
    rows = [change("/a"), change("/a/b"), change("/ab"), change("/c")]
    assert [one.key for one in at_or_below(rows, "/a/")] == ["/a", "/a/b"]
    assert len(list(at_or_below(rows, "/"))) == 4


def test_audit_lines_of_all_brokers_are_merged_and_bad_ones_left_out() -> None:
    def line(at: str, **more: object) -> str:
        return json.dumps(
            {
                "timestamp": at,
                "principal": "User:a",
                "api": "CreateTopics",
                "resource": "topic t",
                "result": "NONE",
                **more,
            }
        )

    rows = audit_rows(
        {
            BrokerId(1): [line("2"), "{", "[]", line("1", result="TOPIC_AUTHORIZATION_FAILED")],
            BrokerId(2): [line("3", principal="User:b")],
        }
    )
    assert [one.timestamp for one in rows] == ["3", "2", "1"]
    assert [one.is_refused for one in rows] == [False, False, True]
    assert [one.principal for one in matching(rows, "user:B")] == ["User:b"]


def test_a_voter_that_is_not_heard_of_is_silent() -> None:
    def voter(number: int, heard_ms: int, end: int) -> dict[str, int]:
        return {"replica_id": number, "log_end_offset": end, "last_fetch_timestamp": heard_ms}

    answer = {
        "error_code": 0,
        "topics": [
            {
                "partitions": [
                    {
                        "leader_id": 1,
                        "leader_epoch": 4,
                        "high_watermark": 90,
                        "current_voters": [
                            voter(1, 9_999, 100),
                            voter(2, 9_000, 99),
                            voter(3, 1_000, 5),
                        ],
                        "observers": [voter(4, -1, -1)],
                    }
                ]
            }
        ],
        "nodes": [],
    }
    health = quorum_health(answer, 10_000)
    assert (health.leader, health.voters, health.silent) == (1, 3, (3,))
    view = quorum_view(answer, 10_000)
    assert view is not None
    assert [(one.role, one.behind, one.silent_ms) for one in view.voters] == [
        ("leader", 0, 1),
        ("voter", 1, 1_000),
        ("voter", 95, 9_000),
        ("observer", None, None),
    ]
    failed = quorum_health({"error_code": 7, "error_message": "late", "topics": []}, 0)
    assert failed.problem == "late"
