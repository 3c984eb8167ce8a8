"""Plans that move replicas: what is proposed, and what a person may write."""

import time
from types import SimpleNamespace
from typing import Any

import pytest

from quorate.broker.console.asking.person import Person
from quorate.broker.console.pages.page import PageRequest
from quorate.broker.console.pages.replicas_page import replica_sections
from quorate.broker.console.views.replica_plan import (
    MOVES_MAX,
    BadPlan,
    chosen_partitions,
    new_copies,
    plan_text,
    proposed_plan,
    read_plan,
)
from quorate.broker.security.principal import ANONYMOUS
from quorate.common.types import (
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    MetadataOffset,
    TopicId,
)
from quorate.metadata_log.partitions import Partition, Topic


def topic(*assigned: tuple[int, ...]) -> Topic:
    return Topic("orders", TopicId(b"\0" * 16), tuple(map(_partition, assigned)), MetadataOffset(1))


def _partition(replicas: tuple[int, ...]) -> Partition:
    brokers = tuple(map(BrokerId, replicas))
    return Partition(brokers, brokers[0], LeaderEpoch(0), brokers, BrokerId(1), ControllerEpoch(1))


def brokers(*ids: int) -> dict[BrokerId, str]:
    return dict.fromkeys(map(BrokerId, ids), "")


def test_a_topic_that_is_spread_over_these_brokers_stays() -> None:
    spread = topic((1, 2), (2, 3), (3, 1))
    assert proposed_plan(spread, brokers(1, 2, 3), 2, range(3)) == {}


def test_a_plan_leaves_a_broker_and_counts_what_is_copied() -> None:
    spread = topic((1, 2), (2, 3), (3, 1))
    plan = proposed_plan(spread, brokers(2, 3), 2, range(3))
    assert all(set(replicas) == {2, 3} for replicas in plan.values())
    assert set(plan) >= {0, 2}
    assert new_copies(spread, plan) == 2
    assert read_plan(plan_text(plan)) == plan


def test_only_the_chosen_partitions_are_in_a_plan() -> None:
    assert set(proposed_plan(topic((1,), (1,), (1,)), brokers(2), 1, [1])) == {1}


def test_too_few_brokers_are_said() -> None:
    with pytest.raises(BadPlan, match="3 replicas need 3 brokers, and 2 are chosen"):
        proposed_plan(topic((1, 2, 3)), brokers(1, 2), 3, range(1))


def test_a_written_plan_may_have_blanks() -> None:
    assert read_plan(" 0: 2, 3 ,1\n\n12:1\n") == {0: (2, 3, 1), 12: (1,)}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "names no partition"),
        ("0: x", "must be like"),
        ("0 1,2", "must be like"),
        ("0: 1,,2", "must be like"),
        ("-1: 2", "must be like"),
        ("٣: 2", "must be like"),
        ("0: 1\n0: 2", "partition 0 is named more than once"),
        ("\n".join(f"{one}: 1" for one in range(MOVES_MAX + 1)), "choose 5000 at most"),
    ],
)
def test_what_is_no_plan_is_refused_with_a_sentence(text: str, said: str) -> None:
    with pytest.raises(BadPlan, match=said):
        read_plan(text)


def test_partitions_are_chosen_by_numbers_and_ranges() -> None:
    assert list(chosen_partitions("", 3)) == [0, 1, 2]
    assert list(chosen_partitions("4, 0-2", 5)) == [0, 1, 2, 4]
    for bad in ("3-2", "5", "0-5", "x", "1,", "-1", "9999999999"):
        with pytest.raises(BadPlan):
            chosen_partitions(bad, 5)


@pytest.mark.parametrize("text", ["0: 1{}x", "0{}x", "0:{}x", "0: 1,{}x"])
def test_a_line_of_blanks_does_not_hold_the_broker(text: str) -> None:
    """Whoever logs in may send one, of a megabyte."""
    begun_s = time.process_time()
    with pytest.raises(BadPlan, match="must be like"):
        read_plan(text.format(" " * 50_000))
    assert time.process_time() - begun_s < 1


def test_ranges_that_are_named_again_and_again_do_not_hold_the_broker() -> None:
    """An address has room for a thousand of them."""
    begun_s = time.process_time()
    assert len(chosen_partitions(",".join(["0-99999"] * 1_000), 100_000)) == 100_000
    assert time.process_time() - begun_s < 1


async def test_no_plan_is_made_again_for_a_page_that_is_open() -> None:
    """The parts of the console that a plan is made of are not there: nothing asks for them."""
    rights = SimpleNamespace(may_cluster=lambda *_, **__: False)
    parts: Any = SimpleNamespace(rights=lambda _person: rights)
    query = {"broker-2": "1"}
    request = PageRequest(Person(ANONYMOUS, "127.0.0.1"), query=query, only_live=True)
    sections = await replica_sections(parts, request, topic((1, 2)))
    assert [(one.name, one.live) for one in sections] == [("moving", True)]
