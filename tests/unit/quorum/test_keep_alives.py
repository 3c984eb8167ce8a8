"""For how long the session of a client was in doubt."""

import random

import pytest

from quorate.quorum.client.keep_alives import KeepAlives

TIMEOUT_MS = 6_000


@pytest.fixture
def answers() -> KeepAlives:
    """A session that was opened at 100,000 ms."""
    answers = KeepAlives()
    answers.answered(99_990, 100_000, TIMEOUT_MS)
    return answers


def since_opened(answers: KeepAlives, now_ms: int) -> int:
    return answers.doubt_ms(now_ms) - 100_000


def test_a_session_whose_keep_alives_are_answered_is_never_in_doubt(answers: KeepAlives) -> None:
    for now_ms in range(101_000, 200_000, 1_000):
        answers.answered(now_ms - 10, now_ms, TIMEOUT_MS)
    assert since_opened(answers, 199_000) == 0


def test_doubt_begins_one_timeout_after_the_last_keep_alive_was_sent(answers: KeepAlives) -> None:
    assert since_opened(answers, 99_990 + TIMEOUT_MS) == 0
    assert since_opened(answers, 99_990 + TIMEOUT_MS + 1) == 1


def test_doubt_ends_with_an_answer_and_is_remembered(answers: KeepAlives) -> None:
    answers.answered(112_000, 112_990, TIMEOUT_MS)
    assert since_opened(answers, 113_000) == 7_000
    assert since_opened(answers, 112_000 + TIMEOUT_MS) == 7_000
    assert since_opened(answers, 112_000 + TIMEOUT_MS + 5) == 7_005


def test_an_answer_that_is_older_than_the_timeout_ends_no_doubt(answers: KeepAlives) -> None:
    answers.answered(105_000, 112_000, TIMEOUT_MS)
    answers.answered(104_000, 112_500, TIMEOUT_MS)
    assert since_opened(answers, 113_000) == 113_000 - (99_990 + TIMEOUT_MS)


def test_doubt_is_the_time_in_which_no_fresh_answer_is_known() -> None:
    seed = random.randrange(1 << 30)
    chance = random.Random(seed)
    answers, limit_ms, doubt_ms, sent_ms = KeepAlives(), 0, 0, 0
    for now_ms in range(20_000):
        if chance.random() < 0.01:
            sent_ms = max(sent_ms, now_ms - chance.randrange(60))
            answers.answered(sent_ms, now_ms, 50)
            limit_ms = sent_ms + 50
        assert answers.doubt_ms(now_ms) == doubt_ms, f"seed {seed}, at {now_ms} ms"
        doubt_ms += now_ms >= limit_ms
