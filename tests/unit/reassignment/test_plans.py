"""Plans: read from Kafka's JSON, made, and what they throttle (C11)."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.broker.controller.managers.placement import PlacementStart
from quorate.reassignment.reassignment_plan import (
    PlanError,
    plan_emptying,
    plan_spread,
    plan_text,
    read_plan,
    read_topics,
    texts_of,
)
from quorate.reassignment.reassignment_throttle import throttled_replicas
from tests.unit.reassignment.fake_admin import named

START = PlacementStart(0, 0)
NO_RACKS = dict.fromkeys((1, 2, 3, 4), "")


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "plan.json"
    path.write_text(text)
    return path


def partition(topic: str, number: int, *replicas: int, **more: object) -> dict[str, object]:
    return {"topic": topic, "partition": number, "replicas": list(replicas), **more}


# --- Kafka's formats ----------------------------------------------------------------------------


def test_c11_a_plan_survives_being_written_and_read(tmp_path: Path) -> None:
    plan = {named("b"): (3,), named("a", 10): (2, 1), named("a", 2): (1, 2)}
    text = plan_text(plan)
    assert text.startswith('{"version":1,"partitions":[{"topic":"a","partition":2,"replicas":[1,2]')
    assert '"log_dirs":["any","any"]' in text
    assert read_plan(written(tmp_path, text)) == plan
    assert texts_of(plan) == "a-2,a-10,b-0"


def test_c11_what_kafka_leaves_out_may_be_left_out(tmp_path: Path) -> None:
    path = written(tmp_path, json.dumps({"partitions": [partition("a", 0, 1)]}))
    assert read_plan(path) == {named("a"): (1,)}
    path.write_text('{"topics":[{"topic":"foo"},{"topic":"bar"}],"version":1}')
    assert read_topics(path) == ["foo", "bar"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "does not hold"),
        ("[]", "does not hold"),
        ("{}", "does not hold"),
        ('{"partitions":[{"topic":"a"}]}', "does not hold"),
        ('{"partitions":[]}', "names no partition"),
        ('{"version":2,"partitions":[]}', "version 2"),
        (
            json.dumps({"partitions": [partition("a", 0, 1), partition("a", 0, 2)]}),
            "a-0 more than once",
        ),
        (
            json.dumps({"partitions": [partition("a", 0, 1, log_dirs=["/disk2"])]}),
            "/disk2.*a-0.*leave log_dirs out",
        ),
    ],
)
def test_c11_another_file_is_refused_by_name(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(PlanError, match=f"plan.json.*{says}"):
        read_plan(written(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"topics":[]}', "names no topic"),
        ('{"topics":[{"topic":"a"},{"topic":"a"}]}', r"\['a'\] more than once"),
        ('{"topics":["a"]}', "does not hold"),
        ('{"partitions":[]}', "does not hold"),
    ],
)
def test_c11_another_file_of_topics_is_refused_by_name(
    tmp_path: Path, text: str, says: str
) -> None:
    with pytest.raises(PlanError, match=says):
        read_topics(written(tmp_path, text))


# --- proposals ----------------------------------------------------------------------------------


def test_c11_topics_are_spread_over_the_brokers_named() -> None:
    current = {named("a", number): (1, 2) for number in range(4)} | {named("b"): (1,)}
    proposed = plan_spread(current, {3: "", 4: ""}, START)
    assert {name: len(replicas) for name, replicas in proposed.items()} == {
        name: len(replicas) for name, replicas in current.items()
    }
    assert {one for replicas in proposed.values() for one in replicas} == {3, 4}
    assert {proposed[named("a", number)][0] for number in range(4)} == {3, 4}


def test_c11_too_few_brokers_are_refused_naming_the_topic() -> None:
    with pytest.raises(PlanError, match="topic 'a' has 2 replicas, and 1 brokers"):
        plan_spread({named("a"): (1, 2)}, {3: ""}, START)


def test_c11_emptying_keeps_places_and_takes_who_has_least() -> None:
    current = {named("a"): (1, 2), named("b"): (2, 1), named("c"): (3, 2), named("d"): (3, 1)}
    plan = plan_emptying(current, 2, NO_RACKS)
    assert plan == {named("a"): (1, 4), named("b"): (4, 1), named("c"): (3, 4)}


def test_c11_preferred_leaders_are_spread_too() -> None:
    current = {named("a", number): (2, 1) for number in range(4)}
    plan = plan_emptying(current, 2, {1: "", 2: "", 3: "", 4: ""})
    assert sorted(replicas[0] for replicas in plan.values()) == [3, 3, 4, 4]


def test_c11_new_replicas_are_spread_over_all_that_can_take_them() -> None:
    current = {named("a", number): (1, 2) for number in range(4)}
    plan = plan_emptying(current, 2, NO_RACKS)
    assert sorted(replicas[1] for replicas in plan.values()) == [3, 3, 4, 4]


def test_c11_of_two_that_hold_as_much_the_one_that_leads_less_is_taken() -> None:
    current = {named("a"): (3, 1), named("b"): (1, 4), named("c"): (2, 1)}
    assert plan_emptying(current, 2, NO_RACKS) == {named("c"): (4, 1)}


def test_c11_a_rack_is_used_twice_only_where_there_is_no_other() -> None:
    racks = {1: "x", 2: "y", 3: "x", 4: "y", 5: "x"}
    assert plan_emptying({named("a"): (1, 2)}, 2, racks) == {named("a"): (1, 4)}
    assert plan_emptying({named("a"): (1, 2, 4)}, 4, racks) == {named("a"): (1, 2, 3)}


def test_c11_a_broker_that_is_gone_can_be_emptied() -> None:
    assert plan_emptying({named("a"): (9, 1)}, 9, {1: "", 2: ""}) == {named("a"): (2, 1)}


def test_c11_too_few_other_brokers_are_named_with_the_topics() -> None:
    current = {named("a"): (1, 2, 3), named("b"): (1, 2)}
    with pytest.raises(PlanError, match=r"broker 3 .* \[1, 2\] are live, and topics \['a'\]"):
        plan_emptying(current, 3, {1: "", 2: "", 3: ""})


@given(
    st.lists(st.permutations(range(6)).map(lambda order: tuple(order[:3])), max_size=40),
    st.lists(st.sampled_from(["", "x", "y", "z"]), min_size=6, max_size=6),
)
def test_c11_an_emptied_broker_has_nothing_and_others_share_it(
    assignments: list[tuple[int, ...]], racks: list[str]
) -> None:
    current = {named("t", number): replicas for number, replicas in enumerate(assignments)}
    plan = plan_emptying(current, 0, dict(enumerate(racks)))
    after = {**current, **plan}
    assert set(plan) == {name for name, replicas in current.items() if 0 in replicas}
    for name, replicas in after.items():
        assert 0 not in replicas
        assert len(set(replicas)) == 3
        assert [one for one in replicas if one in current[name]] == [
            one for one in current[name] if one != 0
        ]


# --- throttles ----------------------------------------------------------------------------------


def test_c11_sources_and_sinks_are_throttled_and_nobody_else() -> None:
    current = {named("a", 0): (1, 2), named("a", 1): (2, 3), named("b"): (1, 2)}
    what = throttled_replicas(
        current, {named("a", 0): (3, 1), named("a", 1): (3, 2), named("b"): (2, 1)}
    )
    assert what.brokers == (1, 2, 3)
    assert what.leader_replicas == {"a": "0:1,0:2"}
    assert what.follower_replicas == {"a": "0:3"}
