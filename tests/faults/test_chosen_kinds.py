"""The kinds of events that a run of faults is asked for."""

import pytest

from tests.faults.run import chosen

KINDS = ["kill -9 of brokers", "kill -9 of voters", "full disk", "cut, one way"]


def test_without_words_all_kinds_are_chosen() -> None:
    assert chosen(KINDS, []) == KINDS


def test_a_word_chooses_every_kind_with_it() -> None:
    assert chosen(KINDS, ["cut", "kill"]) == [*KINDS[:2], KINDS[3]]


def test_a_word_without_a_kind_is_refused() -> None:
    with pytest.raises(AssertionError, match="no kind of event has 'kil9'"):
        chosen(KINDS, ["kill", "kil9"])
