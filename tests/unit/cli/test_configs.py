"""``quorate configs``: Kafka's flags and words."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from quorate.cli.configs import configs_command as command
from quorate.cli.configs.kinds.config_kind import DEFAULT, Entity
from quorate.cli.main import run
from quorate.client import admin
from quorate_proto.v1 import admin_pb2
from tests.support.admin_cluster import FakeCluster, serving


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCluster]:
    """Whatever bootstrap server is named leads there."""
    with serving(FakeCluster(2, controller_id=2)) as cluster:
        monkeypatch.setattr(admin, "_way_in", lambda *_: lambda: cluster.addresses)
        yield cluster


def configs(*arguments: str) -> int:
    return run(["configs", "--bootstrap-server", "127.0.0.1:1", *arguments])


def changes(cluster: FakeCluster) -> list[admin_pb2.ConfigChange]:
    return [
        change
        for request in cluster.brokers[1].asked
        if isinstance(request, admin_pb2.IncrementalAlterConfigsRequest)
        for change in request.changes
    ]


def test_f3_topics_and_brokers_are_changed_in_kafkas_words(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    alter = ["--alter", "--entity-type"]
    listed = "a=1,b=[x,y],c=[z]"
    assert configs(*alter, "topics", "--entity-name", "t", "--add-config", listed) == 0
    assert configs(*alter, "brokers", "--entity-name", "1", "--delete-config", "d,e") == 0
    assert configs(*alter, "brokers", "--entity-default", "--add-config", "f=") == 0
    assert capsys.readouterr().out.splitlines() == [
        "Completed updating config for topic t.",
        "Completed updating config for broker 1.",
        "Completed updating default config for brokers in the cluster.",
    ]
    assert changes(cluster) == [
        admin_pb2.ConfigChange(
            entity_type="topic", entity_name="t", values={"a": "1", "b": "x,y", "c": "z"}
        ),
        admin_pb2.ConfigChange(entity_type="broker", entity_name="1", removed=["d", "e"]),
        admin_pb2.ConfigChange(entity_type="broker", entity_name="", values={"f": ""}),
    ]


def test_f3_changes_may_come_from_a_file_and_are_told_to_scripts(
    cluster: FakeCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "new.properties"
    path.write_text("# why\na = 1\n\nb=[x,y]\n")
    topic = ["--entity-type", "topics", "--entity-name", "t"]
    assert configs("--alter", *topic, "--add-config-file", str(path), "--json") == 0
    assert json.loads(capsys.readouterr().out) == {
        "entity": {"topics": "t"},
        "added": {"a": "1", "b": "x,y"},
        "deleted": [],
    }


def test_f3_a_refusal_is_one_line(cluster: FakeCluster, capsys: pytest.CaptureFixture[str]) -> None:
    topic = ["--entity-type", "topics", "--entity-name", "t"]
    assert configs("--alter", *topic, "--add-config", "bad=1") == 1
    assert capsys.readouterr().err == "quorate: INVALID_CONFIG: bad: no\n"


def test_f3_what_is_set_is_described_and_all_that_is_in_force(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = ["--entity-type", "topics", "--entity-name", "t"]
    line = (
        "  told.by=1 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:told.by=1, DEFAULT_CONFIG:x=2}"
    )
    assert configs("--describe", *topic) == 0
    assert capsys.readouterr().out.splitlines() == ["Dynamic configs for topic t are:", line]
    assert configs("--describe", *topic, "--all") == 0
    assert capsys.readouterr().out.splitlines() == [
        "All configs for topic t are:",
        "  default=true sensitive=false synonyms={}",
        "  secret=null sensitive=true synonyms={}",
        line,
    ]


def test_f3_without_a_name_all_there_are_are_described(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert configs("--describe", "--entity-type", "brokers") == 0
    titles = [line for line in capsys.readouterr().out.splitlines() if line[0] != " "]
    assert titles == [
        "Dynamic configs for broker 1 are:",
        "Dynamic configs for broker 2 are:",
        "Default configs for brokers in the cluster are:",
    ]
    assert configs("--describe", "--entity-type", "topics", "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert [(one["entity_name"], [entry["name"] for entry in one["configs"]]) for one in shown] == [
        ("a", ["told.by"]),
        ("b", ["told.by"]),
    ]


TOPIC = ("--entity-type", "topics", "--entity-name", "t")


@pytest.mark.parametrize(
    "arguments",
    [
        TOPIC,
        ("--describe", "--alter", *TOPIC),
        ("--alter", *TOPIC),
        ("--alter", *TOPIC, "--all", "--add-config", "a=1"),
        ("--alter", *TOPIC, "--add-config", "a"),
        ("--alter", *TOPIC, "--add-config", "=a"),
        ("--alter", *TOPIC, "--add-config", "a=1", "--delete-config", "a"),
        ("--alter", "--entity-type", "topics", "--add-config", "a=1"),
        ("--alter", "--entity-type", "topics", "--entity-default", "--add-config", "a=1"),
        ("--describe", *TOPIC, "--add-config", "a=1"),
        ("--describe",),
        ("--describe", "--entity-type", "wishes"),
        ("--describe", "--entity-type", "topics", "--entity-type", "brokers"),
        ("--describe", *TOPIC, "--entity-name", "u"),
    ],
    ids=" ".join,
)
def test_f3_wrong_usage_is_said_before_anybody_is_asked(
    cluster: FakeCluster, arguments: tuple[str, ...]
) -> None:
    assert configs(*arguments) == 2
    assert not any(broker.asked for broker in cluster.brokers)


def test_q12_names_and_defaults_are_those_of_their_types_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[list[Entity]] = []

    class Pairs:
        def describe(
            self, _admin: object, entities: list[Entity], *, everything: bool, as_json: bool
        ) -> None:
            seen.append(entities)

    monkeypatch.setattr(command, "PAIRS", Pairs(), raising=False)
    together = frozenset({"users", "clients"})
    kinds = {**command.KINDS, together: "quorate.cli.configs.configs_command:PAIRS"}
    monkeypatch.setattr(command, "KINDS", kinds)
    types = ("--entity-type", "users", "--entity-type", "clients")
    for names in (
        ("--entity-default", "--entity-name", "a"),
        ("--entity-name", "a", "--entity-default"),
        ("--entity-name", "--entity-default"),
    ):
        assert configs("--describe", *types, *names) == 0
    assert seen == [
        [Entity("users", DEFAULT), Entity("clients", "a")],
        [Entity("users", "a"), Entity("clients", DEFAULT)],
        [Entity("users", "--entity-default"), Entity("clients", None)],
    ]
