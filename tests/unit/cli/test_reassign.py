"""``quorate reassign`` and ``quorate brokers``: options, requests, what is printed (C11)."""

import json
from pathlib import Path

import pytest

from quorate.cli.main import run
from quorate.client import admin as admin_module
from quorate.reassignment import reassignment_progress as progress
from quorate.reassignment.reassignment_throttle import FOLLOWER_REPLICAS, LEADER_RATE
from tests.unit.reassignment.fake_admin import FakeAdmin, named


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> FakeAdmin:
    """Partitions foo-0 on 3, 2, 1 and foo-1 on 1, 2, 3; brokers 0 to 3."""
    fake = FakeAdmin(
        dict.fromkeys(range(4), ""), {named("foo"): (3, 2, 1), named("foo", 1): (1, 2, 3)}
    )
    monkeypatch.setattr(admin_module, "AdminClient", lambda *_, **__: fake)
    monkeypatch.setattr(progress, "SETTLE_S", 0.0)
    monkeypatch.setattr(progress, "POLL_INTERVAL_S", 0.0)
    return fake


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    """foo-0 goes to 0, 2, 1."""
    path = tmp_path / "plan.json"
    partitions = [{"topic": "foo", "partition": 0, "replicas": [0, 2, 1]}]
    path.write_text(json.dumps({"version": 1, "partitions": partitions}))
    return path


def reassign(*words: str | Path) -> int:
    return run(["reassign", "--bootstrap-server", "127.0.0.1:1", *map(str, words)])


def brokers(*words: str) -> int:
    return run(["brokers", *words, "--bootstrap-server", "127.0.0.1:1"])


def execute(plan: Path, *words: str) -> int:
    return reassign("--execute", "--reassignment-json-file", plan, *words)


def test_c11_s8_a_plan_from_beginning_to_end(
    admin: FakeAdmin, plan: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(plan) == 0
    said = capsys.readouterr().out
    assert '"partition":0,"replicas":[3,2,1]' in said, "to go back to"
    assert said.endswith("Successfully started partition reassignments for foo-0\n")
    assert reassign("--list") == 0
    assert capsys.readouterr().out.splitlines() == [
        "Current partition reassignments:",
        "foo-0: replicas: 3,2,1,0. adding: 0. removing: 3.",
    ]
    assert reassign("--verify", "--reassignment-json-file", plan) == 0
    assert "Reassignment of partition foo-0 is still in progress." in capsys.readouterr().out
    admin.finish()
    assert reassign("--verify", "--reassignment-json-file", plan) == 0
    assert "Reassignment of partition foo-0 is completed." in capsys.readouterr().out
    assert reassign("--list") == 0
    assert capsys.readouterr().out == "No partition reassignments found.\n"


def test_c11_s8_a_plan_is_cancelled(
    admin: FakeAdmin, plan: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    execute(plan, "--throttle", "1000")
    capsys.readouterr()
    assert reassign("--cancel", "--reassignment-json-file", plan) == 0
    cancelled = "Successfully cancelled partition reassignments for: foo-0\n"
    assert capsys.readouterr().out == cancelled
    assert admin.asked[-1] == {named("foo"): None}
    assert not admin.configured
    assert reassign("--cancel", "--reassignment-json-file", plan) == 0
    none = "None of the specified partition reassignments are active.\n"
    assert capsys.readouterr().out == none


def test_c11_a_throttle_stays_until_all_is_done(
    admin: FakeAdmin, plan: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(plan, "--throttle", "1000") == 0
    assert "throttle limit was set to 1000 B/s" in capsys.readouterr().out
    assert admin.configured["broker", "3"][LEADER_RATE] == "1000"
    assert admin.configured["topic", "foo"][FOLLOWER_REPLICAS] == "0:0"
    reassign("--verify", "--reassignment-json-file", plan)
    assert admin.configured
    admin.finish()
    reassign("--verify", "--reassignment-json-file", plan, "--preserve-throttles")
    assert admin.configured
    reassign("--verify", "--reassignment-json-file", plan)
    assert not admin.configured


def test_c11_another_plan_needs_consent_while_one_is_under_way(
    admin: FakeAdmin, plan: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    admin.moving[named("foo", 1)] = (0, 1, 2)
    assert execute(plan) == 1
    assert "--additional" in capsys.readouterr().err
    assert not admin.asked
    assert execute(plan, "--additional") == 0


def test_c11_what_is_refused_is_one_line(
    admin: FakeAdmin, plan: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    admin.refuse[named("foo")] = 39
    assert execute(plan) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line == "quorate: INVALID_REPLICA_ASSIGNMENT: reassigning foo-0: refused"


def test_c11_a_plan_is_watched_to_its_end(
    admin: FakeAdmin, plan: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    admin.moves_when_listed = True
    assert execute(plan, "--wait") == 0
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "0 of 1 partitions have moved",
        "1 of 1 partitions have moved",
    ]


@pytest.mark.usefixtures("admin")
def test_c11_a_plan_is_proposed_for_the_brokers_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topics = tmp_path / "topics.json"
    topics.write_text('{"version":1,"topics":[{"topic":"foo"}]}')
    words = ("--generate", "--topics-to-move-json-file", topics, "--broker-list")
    assert reassign(*words, "0,1,2") == 0
    current, proposed = (
        json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")
    )
    assert [one["replicas"] for one in current["partitions"]] == [[3, 2, 1], [1, 2, 3]]
    assert all(set(one["replicas"]) == {0, 1, 2} for one in proposed["partitions"])
    assert reassign(*words, "0,1,9") == 1
    assert "brokers [9] of --broker-list are not live" in capsys.readouterr().err
    assert reassign(*words, "0,0") == 2
    assert reassign(*words, "a") == 2


@pytest.mark.usefixtures("admin")
@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "--generate, --execute, --verify, --cancel, --list"),
        (("--execute",), "--execute needs --reassignment-json-file"),
        (("--verify",), "--verify needs --reassignment-json-file"),
        (("--generate", "--broker-list", "1"), "needs --topics-to-move-json-file"),
    ],
)
def test_c11_what_is_missing_is_named(
    words: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert reassign(*words) == 2
    assert says in capsys.readouterr().err


def test_c11_json_is_for_scripts(
    admin: FakeAdmin, plan: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = ("--reassignment-json-file", plan)
    assert execute(plan, "--json") == 0
    begun = json.loads(capsys.readouterr().out)
    assert begun["current"]["partitions"][0]["replicas"] == [3, 2, 1]
    assert begun["partitions"][0]["error"] == "NONE"
    reassign("--list", "--json")
    assert json.loads(capsys.readouterr().out)[0]["adding_replicas"] == [0]
    reassign("--verify", *file, "--json")
    (one,) = json.loads(capsys.readouterr().out)["partitions"]
    assert (one["topic"], one["partition"], one["state"]) == ("foo", 0, "in progress")
    reassign("--cancel", *file, "--json")
    assert json.loads(capsys.readouterr().out)["partitions"][0]["error_code"] == 0


# --- brokers ------------------------------------------------------------------------------------


def test_c11_brokers_are_listed_with_what_they_hold(
    admin: FakeAdmin, capsys: pytest.CaptureFixture[str]
) -> None:
    del admin.racks[2]
    admin.racks[3] = "attic"
    assert brokers("list") == 0
    assert capsys.readouterr().out.splitlines() == [
        "broker 0    h0:9092: leads 0 of 0 replicas",
        "broker 1    h1:9092: leads 1 of 2 replicas",
        "broker 2    away: leads 0 of 2 replicas",
        "broker 3    h3:9092, rack attic: leads 1 of 2 replicas",
    ]
    brokers("list", "--json")
    assert [row["live"] for row in json.loads(capsys.readouterr().out)] == [True, True, False, True]


def test_c11_a_decommissioned_broker_may_stop(
    admin: FakeAdmin, capsys: pytest.CaptureFixture[str]
) -> None:
    assert brokers("decommission", "2", "--dry-run") == 0
    planned = json.loads(capsys.readouterr().out)["partitions"]
    assert [one["replicas"] for one in planned] == [[3, 0, 1], [1, 0, 3]]
    assert not admin.asked
    admin.moves_when_listed = True
    assert brokers("decommission", "2") == 0
    assert capsys.readouterr().out.splitlines() == [
        "0 of 2 partitions have moved",
        "2 of 2 partitions have moved",
        "Broker 2 holds no replica any more: it may stop.",
    ]
    assert brokers("decommission", "2", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"broker_id": 2, "moved": 0}


def test_c11_too_few_brokers_are_an_error_that_says_what_to_do(
    admin: FakeAdmin, capsys: pytest.CaptureFixture[str]
) -> None:
    del admin.racks[0]
    assert brokers("decommission", "2") == 1
    said = capsys.readouterr().err
    assert "broker 2 cannot be emptied: 2 other brokers [1, 3] are live" in said
    assert "start another broker" in said
    assert not admin.asked
