"""The message filter as a pure function, and the check of the library it fits."""

from pathlib import Path
from typing import Any, NamedTuple

import pysyncobj.syncobj
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.quorum.raft import guards
from quorate.quorum.raft.guards import (
    LibraryMismatch,
    SafetyViolation,
    Vote,
    check_library,
    conflict_index,
    filter_append,
    grants_pre_vote,
)


class ListLog(NamedTuple):
    """Terms of the entries from ``first_index`` on."""

    terms: list[int]
    first_index: int = 1

    @property
    def last_index(self) -> int:
        return self.first_index + len(self.terms) - 1

    def term_at(self, index: int) -> int | None:
        at = index - self.first_index
        return self.terms[at] if 0 <= at < len(self.terms) else None


def handled_by_library(log: ListLog, message: dict[str, Any]) -> ListLog:
    """What the library makes of an append_entries: truncate behind the previous entry, append."""
    keep = message["prevLogIdx"] - log.first_index + 1
    if log.term_at(message["prevLogIdx"]) != message["prevLogTerm"]:
        return log
    return log._replace(terms=log.terms[:keep] + [term for _, _, term in message["entries"]])


def append(previous: int, previous_term: int | None, terms: list[int], commit: int) -> Any:  # noqa: ANN401
    return {
        "type": "append_entries",
        "term": 99,
        "commit_index": commit,
        "prevLogIdx": previous,
        "prevLogTerm": previous_term,
        "entries": [(b"\x00", previous + n, term) for n, term in enumerate(terms, 1)],
    }


@st.composite
def leader_and_follower(draw: st.DrawFn) -> tuple[list[int], list[int], int, int, int]:
    """A leader's log, a follower's that shares a committed prefix, and a slice that is sent."""
    leader = sorted(draw(st.lists(st.integers(1, 4), min_size=1, max_size=12)))
    shared = draw(st.integers(1, len(leader)))
    stray = sorted(draw(st.lists(st.integers(5, 7), max_size=5)))
    committed = draw(st.integers(1, shared))
    previous = draw(st.integers(1, len(leader)))
    count = draw(st.integers(0, len(leader) - previous))
    return leader, leader[:shared] + stray, committed, previous, count


@given(case=leader_and_follower(), compacted=st.integers(0, 5))
def test_p4_no_message_of_a_leader_loses_what_it_has_itself(
    case: tuple[list[int], list[int], int, int, int], compacted: int
) -> None:
    leader, follower, committed, previous, count = case
    first = min(1 + compacted, committed)
    log = ListLog(follower[first - 1 :], first)
    message = append(previous, leader[previous - 1], leader[previous : previous + count], 50)
    filtered, verified = filter_append(message, log, committed)
    after = handled_by_library(log, filtered)
    agreed = next(
        (n for n, (a, b) in enumerate(zip(leader, follower, strict=False)) if a != b),
        min(len(leader), len(follower)),
    )
    # What agreed with the leader before still does, whatever the message was.
    assert after.terms[: agreed - first + 1] == leader[first - 1 : agreed]
    if verified is not None:
        # And the claim is true: up to there the log is the leader's.
        assert verified == max(previous + count, first if previous < first else 0) or count == 0
        upto = verified - first + 1
        assert after.terms[:upto] == leader[first - 1 : verified]
        assert filtered["commit_index"] <= verified


def test_p4_commit_index_is_limited_to_what_the_message_proves() -> None:
    log = ListLog([0, 1, 1, 1, 1])
    filtered, verified = filter_append(append(1, 0, [1, 1], 5), log, 1)
    assert (filtered["commit_index"], verified) == (3, 3)


def test_previous_entry_that_is_missing_proves_nothing() -> None:
    assert filter_append(append(9, 1, [1], 9), ListLog([0, 1]), 1).verified_index is None


def test_other_entry_below_the_commit_index_is_a_violation() -> None:
    with pytest.raises(SafetyViolation, match="another entry 2"):
        filter_append(append(2, 5, [], 9), ListLog([0, 1, 1]), 3)


def test_p7_conflict_goes_back_by_term_but_not_below_the_commit_index() -> None:
    log = ListLog([0, 1, 1, 2, 2, 2])
    assert conflict_index(log, 6, 1) == 4
    assert conflict_index(log, 6, 5) == 6
    assert conflict_index(log, 3, 1) == 2


@pytest.mark.parametrize(
    ("asked", "heard", "granted"),
    [
        (Vote(3, 2, 10), False, True),
        (Vote(3, 2, 10), True, False),
        (Vote(2, 2, 10), False, False),
        (Vote(3, 2, 9), False, False),
        (Vote(3, 1, 99), False, False),
        (Vote(3, 3, 1), False, True),
    ],
)
def test_p8_pre_vote_needs_log_term_and_silence(asked: Vote, heard: bool, granted: bool) -> None:
    assert grants_pre_vote(asked, Vote(3, 2, 10), leader_heard_recently=heard) is granted


def test_d4_installed_library_is_the_pinned_one() -> None:
    check_library()


def test_d4_other_version_is_refused_with_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guards, "LIBRARY_VERSION", "0.3.99")
    with pytest.raises(LibraryMismatch, match=r"pip install pysyncobj==0\.3\.99"):
        check_library()


def test_d4_changed_source_is_refused_with_advice(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    changed = tmp_path / "syncobj.py"
    changed.write_text("# not what was released\n")
    monkeypatch.setattr(pysyncobj.syncobj, "__file__", str(changed))
    with pytest.raises(LibraryMismatch, match="force-reinstall"):
        check_library()
