"""Patterns match what ``re`` matches, in time that the length of the text bounds."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.broker.common.linear_pattern import InvalidPattern, LinearPattern
from quorate.broker.common.steps import Steps


def matches(pattern: str, text: str) -> bool:
    return result_of(LinearPattern(pattern).matching(text))[0]


def result_of(steps: Steps[bool]) -> tuple[bool, int]:
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return bool(end.value), count
        count += 1


@pytest.mark.parametrize(
    "pattern",
    [
        *("pay", "pay.*", "pay-[0-9]+", "a|bc|", "(a|b)*c", "(?:ab){2,3}", "a{2}", "a{1,}", "a??"),
        *(r"\d+-\w*", r"a\.b", r"[^a-c]x", r"[\w-]+", r"[]a]", r"[a-]", "^pay$", "(^a|b$)", ""),
        *("(?i)pAy", r"\t\S\D\W", r"(a*)*b", "(a|a)*", ".", "a{0}b", "(a{0,2}b?){2}"),
    ],
)
@pytest.mark.parametrize(
    "text",
    [
        *("", "pay", "PAY", "pay-17", "payer", "a", "b", "bc", "aabc", "abab", "ababab", "aa"),
        *("1-x", "a.b", "axb", "dx", "x-y", "]", "-", "\txy-", "aab", "\n", "aabb", "b"),
    ],
)
def test_it_matches_what_re_matches(pattern: str, text: str) -> None:
    assert matches(pattern, text) == (re.fullmatch(pattern, text) is not None)


PIECES = st.sampled_from(
    ["a", "b", ".", "[ab]", "[^a]", "a*", "b+", "(a|b)", "(ab)?", "(a|b){1,2}"]
)


@given(st.lists(PIECES, max_size=6).map("".join), st.text("abc", max_size=8))
def test_random_patterns_match_what_re_matches(pattern: str, text: str) -> None:
    assert matches(pattern, text) == (re.fullmatch(pattern, text) is not None)


def test_quoted_text_stands_for_itself() -> None:
    assert matches(r"\Qa.b*\E-\d", "a.b*-1")
    assert not matches(r"\Qa.b*\E-\d", "axb-1")
    assert matches(r"\Qa(b", "a(b")


@pytest.mark.parametrize(
    "pattern",
    [
        *(
            "(",
            ")",
            "a)",
            "[a",
            "*",
            "a**",
            "a{2",
            "a{x}",
            "a{3,2}",
            "\\",
            r"\8",
            r"\p{L}",
            "(?=a)",
        ),
        *("a^b", "a$b", "[b-a]", "[[:alpha:]]", "(a{1000}){1000}", "((((a{9}){9}){9}){9}){9}"),
        *("a{1001}", "a{99999999999999}", "(" * 51 + ")" * 51, "[", "[a-", "(?i"),
    ],
)
def test_what_is_no_pattern_or_too_large_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidPattern):
        LinearPattern(pattern)


def test_a_pattern_that_keeps_re_busy_for_ever_takes_a_few_steps() -> None:
    found, steps = result_of(LinearPattern("(a|aa)+$").matching("a" * 2_000 + "b"))
    assert not found
    assert 1 < steps < 10
