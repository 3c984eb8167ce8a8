"""What is made of a log after ISRs have flapped: each kind of fault is told."""

from tests.support.flapping.story import Lane, Sent, Story, judge

LANE = Lane("orders", 0, "me")


def records(*numbers: int) -> set[Sent]:
    return {Sent(LANE, number) for number in numbers}


def told(*read: int, **story: object) -> str:
    return str(judge([Story(**story)], {LANE: list(read)}))  # type: ignore[arg-type]


def test_what_was_acknowledged_must_be_there_once_and_in_order() -> None:
    assert judge([Story(acknowledged=records(1, 2))], {LANE: [1, 2, 3]}).is_good
    assert told(1, 3, acknowledged=records(1, 2)).startswith("1 lost")
    assert told(1, 2, 2).startswith("1 twice")
    assert told(2, 1).startswith("1 out of order")
    assert told(acknowledged=records(1)).startswith("1 lost")


def test_what_was_aborted_must_not_be_read() -> None:
    assert told(1, 2, aborted=records(2)).startswith("1 aborted but read")


def test_a_transaction_of_unknown_end_is_read_as_a_whole_or_not_at_all() -> None:
    uncertain = [frozenset(records(1, 2))]
    assert judge([Story(uncertain=uncertain)], {LANE: [1, 2]}).is_good
    assert judge([Story(uncertain=uncertain)], {LANE: []}).is_good
    assert told(1, uncertain=uncertain) == "1 transactions torn"
