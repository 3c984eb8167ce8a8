"""The notes of a standing group tell each broken promise."""

import pytest

from tests.faults.standing_group import GroupNotes, Place

ORDERS: Place = ("orders", 0)


@pytest.fixture
def notes() -> GroupNotes:
    """Return the notes of a group whose first member has read and committed two records."""
    notes = GroupNotes()
    notes.assigned("first", [ORDERS])
    notes.read("first", ORDERS, 0)
    notes.read("first", ORDERS, 1)
    notes.commit_answered(ORDERS, 2)
    assert not notes.violations
    return notes


def test_a_partition_that_is_handed_over_and_read_on_is_fine(notes: GroupNotes) -> None:
    notes.revoked("first", [ORDERS])
    notes.assigned("second", [ORDERS])
    notes.read("second", ORDERS, 2)
    notes.judge_committed({ORDERS: 2}, {ORDERS: 2})
    assert not notes.violations


def test_records_that_were_not_committed_may_be_read_again(notes: GroupNotes) -> None:
    notes.read("first", ORDERS, 2)
    notes.revoked("first", [ORDERS])
    notes.assigned("second", [ORDERS])
    notes.read("second", ORDERS, 2)
    assert not notes.violations
    assert notes.read_to == {ORDERS: 3}


def test_two_owners_are_told(notes: GroupNotes) -> None:
    notes.assigned("second", [ORDERS])
    assert "while first owns it" in notes.violations[0]


def test_a_reader_that_is_no_owner_is_told(notes: GroupNotes) -> None:
    notes.read("second", ORDERS, 2)
    assert "second reads ('orders', 0), which it does not own" in notes.violations[0]


def test_a_record_that_is_left_out_is_told(notes: GroupNotes) -> None:
    notes.read("first", ORDERS, 3)
    assert "reads 3 of ('orders', 0) next, not 2" in notes.violations[0]


def test_a_committed_record_that_is_read_again_is_told(notes: GroupNotes) -> None:
    notes.read("first", ORDERS, 1)
    assert "1 of ('orders', 0) is read after 2 committed" in notes.violations[0]


@pytest.mark.parametrize("found", [{}, {ORDERS: 1}], ids=["none", "an older one"])
def test_a_lost_commit_is_told(notes: GroupNotes, found: dict[Place, int]) -> None:
    notes.judge_committed(found, {ORDERS: 2})
    assert "2 was committed" in notes.violations[0]
