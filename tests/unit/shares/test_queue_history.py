"""The checker of the soak of share groups finds each fault in histories that are made up."""

from collections.abc import Iterable

import pytest

from tests.queues.history import Delivery, Record, delivered_after_the_answer, held_twice
from tests.queues.ledger import Ledger

ONE, TWO = Record(0, 1), Record(0, 2)
LOCK_S = 5.0


def delivery(
    worker: str, asked_s: float, got_s: float, *, epoch: int | None = 1, record: Record = ONE
) -> Delivery:
    return Delivery(worker, record, asked_s, got_s, LOCK_S, epoch)


def ledger_of(*deliveries: Delivery, produced: Iterable[Record] = (ONE,)) -> Ledger:
    ledger = Ledger(produced)
    ledger.delivered(deliveries)
    return ledger


# -- two members, one record -----------------------------------------------------------------------


def test_kip_932_a_record_that_another_member_surely_has_is_a_fault() -> None:
    both = [delivery("a", 1.0, 1.2), delivery("b", 2.0, 2.1)]
    assert "b got Record(partition=0, offset=1)" in "".join(held_twice(both))


def test_kip_932_the_order_of_the_notes_does_not_matter() -> None:
    both = [delivery("b", 2.0, 2.1), delivery("a", 1.0, 1.2)]
    assert len(list(held_twice(both))) == 1


def test_kip_932_a_member_that_gets_again_what_it_has_is_a_fault() -> None:
    assert list(held_twice([delivery("a", 1.0, 1.2), delivery("a", 2.0, 2.1)]))


def test_kip_932_requests_at_the_same_time_are_a_fault_if_both_members_have_the_record() -> None:
    assert list(held_twice([delivery("a", 1.0, 1.2), delivery("b", 1.1, 1.3)]))


def test_kip_932_requests_at_the_same_time_may_be_served_after_a_release() -> None:
    first, second = delivery("a", 1.0, 1.3), delivery("b", 1.1, 1.2)
    second.given_up_at_s = 1.25
    assert not list(held_twice([first, second]))


def test_kip_932_after_the_end_of_a_lock_another_member_may_have_the_record() -> None:
    assert not list(held_twice([delivery("a", 1.0, 1.2), delivery("b", 1.5, 1.0 + LOCK_S)]))


def test_kip_932_a_renewed_lock_ends_later() -> None:
    first, second = delivery("a", 1.0, 1.2), delivery("b", 5.0, 6.5)
    assert not list(held_twice([first, second]))
    first.extend(4.0)
    assert list(held_twice([first, second]))


def test_kip_932_what_a_member_gave_up_another_one_may_have() -> None:
    first, second = delivery("a", 1.0, 1.2), delivery("b", 2.0, 2.1)
    first.given_up_at_s = 2.05
    assert not list(held_twice([first, second]))
    first.given_up_at_s = 2.2
    assert list(held_twice([first, second]))


@pytest.mark.parametrize("epoch", [2, None])
def test_kip_932_locks_do_not_outlive_the_leader_epoch(epoch: int | None) -> None:
    assert not list(held_twice([delivery("a", 1.0, 1.2), delivery("b", 2.0, 2.1, epoch=epoch)]))


def test_kip_932_of_three_deliveries_each_pair_is_looked_at() -> None:
    first, second, third = delivery("a", 1.0, 1.2), delivery("b", 2.0, 2.1), delivery("c", 7.0, 7.1)
    second.given_up_at_s = 2.2
    third.asked_at_s = 3.0
    third.got_at_s = 3.1
    assert len(list(held_twice([first, second, third]))) == 2


# -- settled records -------------------------------------------------------------------------------


def test_kip_932_a_record_that_is_asked_for_and_comes_after_its_answer_is_a_fault() -> None:
    (fault,) = delivered_after_the_answer([delivery("b", 3.0, 3.1)], final_at_s=2.9)
    assert "asking 0.100 s after it was settled" in fault


def test_kip_932_a_request_that_was_under_way_at_the_answer_is_no_fault() -> None:
    assert not list(delivered_after_the_answer([delivery("b", 2.8, 3.1)], final_at_s=2.9))


# -- the ledger ------------------------------------------------------------------------------------


def test_kip_932_a_ledger_without_faults_has_none() -> None:
    ledger = ledger_of(delivery("a", 1.0, 1.2))
    assert ledger.left == 1
    ledger.settled("a", [ONE])
    assert ledger.left == 0
    assert ledger.check() == []


def test_kip_932_a_ledger_finds_each_fault() -> None:
    held = ledger_of(delivery("a", 1.0, 1.2), delivery("b", 2.0, 2.1))
    held.settled("a", [ONE])
    assert "before the end of the lock of a" in "".join(held.check())

    late = ledger_of(delivery("a", 1.0, 1.2))
    late.settled("a", [ONE])
    late.delivered([delivery("b", 1e12, 1e12 + 1)])
    assert "after it was settled" in "".join(late.check())

    twice = ledger_of(delivery("a", 1.0, 1.2))
    twice.settled("a", [ONE])
    twice.settled("b", [ONE])
    assert "was settled by b, and by a before" in "".join(twice.check())

    unseen = Ledger([ONE])
    unseen.settled("a", [ONE])
    assert "was settled by a" in "".join(unseen.check())

    unknown = ledger_of(delivery("a", 1.0, 1.2, record=TWO), produced=[ONE])
    assert "which nobody produced" in "".join(unknown.check())
    assert f"{ONE} was never delivered" in unknown.check()

    lost = ledger_of(delivery("a", 1.0, 1.2))
    assert lost.check() == [f"{ONE} is lost after 1 deliveries with known times"]
    lost.unknown([ONE])
    assert lost.check() == []


def test_kip_932_a_ledger_counts_what_it_can_judge() -> None:
    ledger = ledger_of(
        delivery("a", 1.0, 1.2),
        delivery("b", 7.0, 7.2, epoch=None),
        delivery("b", 7.0, 7.2, record=TWO),
        produced=[ONE, TWO],
    )
    ledger.unknown([ONE])
    ledger.settled("b", [TWO])
    assert (ledger.handed_out, ledger.redelivered, ledger.judged) == (3, 1, 2)
    assert (ledger.left, ledger.unanswered) == (1, 1)
